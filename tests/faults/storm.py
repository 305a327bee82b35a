"""A storm: receivers in Spark and in `penstock ingest`, killed, stopped and cut in random order.

Each source has a journal stream that two receivers write, one as a Spark task and one as a process
of its own; what is killed is started again, as an operator's tools do. Faults come from two
threads, so they overlap: one strikes while another's recovery is under way.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from tests.background import background
from tests.faults.driver import Driver
from tests.faults.pids import descends_from, executor_of, is_alive, orphan_and_stop
from tests.faults.sources.source import PLACES, Balance, Source
from tests.forked import Forked
from tests.waiting import WAIT_S, eventually

_PROGRAM = Path(__file__).with_name("source_program.py")
_COMMAND = Path(__file__).with_name("command.py")
_RECEIVERS = {"spark": "r0", "ingest": "gate"}


class Site:
    """One checkpoint location, its program and its ingest processes, all kept running."""

    def __init__(self, root: Path, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self.root = root
        self.sink, self.checkpoint = root / "sink", root / "checkpoint"
        self._zombies: list[int] = []
        self._receivers: set[int] = set()
        self.spark = _Kept(self._start_driver)
        self.ingest = {name: _Kept(partial(self._start_ingest, name)) for name in sources}

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for source in self.sources.values():
                stack.enter_context(source.running())
            stack.callback(self._wake_all)
            stack.enter_context(self.spark.running())
            for name in self.sources:  # the program makes the streams
                self.wait_pid(name, "spark")
            for name, ingest in self.ingest.items():
                stack.enter_context(ingest.running())
                self.wait_pid(name, "ingest")
            yield

    @contextmanager
    def sending(self) -> Iterator[None]:
        with ExitStack() as stack:
            for source in self.sources.values():
                stack.enter_context(source.sending())
            yield

    def pid(self, name: str, place: str, but: int | None = None) -> int | None:
        """Return the living process of a source's receiver at a place, None when it has none."""
        try:
            journal = JournalStream.open(open_storage(self.checkpoint / "journal"), name)
            status = read_status(journal, _RECEIVERS[place])
        except PenstockError:
            return None
        if status is None or status.pid == but or not is_alive(status.pid):
            return None
        self._receivers.add(status.pid)
        return status.pid

    def wait_pid(self, name: str, place: str, but: int | None = None) -> int:
        """Return the receiver's process as soon as there is one, other than ``but``."""
        up = eventually(lambda: self.pid(name, place, but) is not None)
        assert up, f"no receiver of {name} at {place}: {self.errors()}"
        return self.pid(name, place, but) or self.wait_pid(name, place, but)

    def note_receivers(self) -> dict[tuple[str, str], int | None]:
        """Return the receivers that are up; they have to stay, or to end, from now on."""
        return {(name, place): self.pid(name, place) for name in self.sources for place in PLACES}

    def recovered(self) -> bool:
        """Whether all receivers are those that shall stay, and all before them have ended.

        One that a killed driver left behind is up for a while, and so is one that a later one has
        fenced: both end soon, with what they have read and not stored.
        """
        current = self.note_receivers()
        stay = all(
            pid is not None and descends_from(pid, self._kept(name, place).process.pid)
            for (name, place), pid in current.items()
        )
        gone = {*self._receivers, *self._zombies} - {*current.values()}
        alone = all(kept.is_alone() for kept in (self.spark, *self.ingest.values()))
        return stay and alone and not any(map(is_alive, gone))

    def state(self) -> str:
        """Return what is up, for the message of a failed test."""
        kept = {"driver": self.spark, **self.ingest}
        ends = {name: each.process.poll() for name, each in kept.items()}
        zombies = [pid for pid in self._zombies if is_alive(pid)]
        receivers = self.note_receivers()
        return f"receivers {receivers}, ends {ends}, woken and alive {zombies}\n{self.errors()}"

    def will_wake(self, pid: int) -> None:
        """Note a process that will be stopped: it is woken when the site ends, if not before."""
        self._zombies.append(pid)

    def balances(self) -> dict[str, Balance]:
        """Compare what is in the sinks now with the sources' ledgers."""
        return {name: source.balance(self._seen(name)) for name, source in self.sources.items()}

    def twice(self) -> str:
        """Return in which files of the sinks records are that came twice, for a failed test.

        Two writes (the hex digits in the files' names) of one batch are Spark's, which wrote it
        over; two batches are the journal's, which has them twice.
        """
        places: dict[str, list[str]] = {}
        for name in self.sources:
            for file in self._files(name):
                where = f"{name}/{file.parent.name}/{file.name[:19]}"
                for value in pq.ParquetFile(file).read(["value"])["value"].to_pylist():
                    places.setdefault(f"{name} {value}", []).append(where)
        counts = Counter(tuple(files) for files in places.values() if len(files) > 1)
        return "\n".join(f"{count} in {', '.join(files)}" for files, count in counts.items())

    def settle(self) -> dict[str, Balance]:
        """Wait until nothing is missing, and until what may still come has come."""
        eventually(lambda: not any(each.lost for each in self.balances().values()))
        for _ in range(3):
            self.spark.wait_line("committed")
        return self.balances()

    def errors(self) -> str:
        """Return the end of what driver and ingest processes wrote, from the last traceback on."""
        texts = [log.read_text(errors="replace") for log in sorted(self.root.glob("errors-*"))]
        return "\n".join(text[max(text.rfind("Traceback"), 0) :][-1500:] for text in texts)

    def _kept(self, name: str, place: str) -> _Kept:
        return self.spark if place == "spark" else self.ingest[name]

    def _files(self, name: str) -> list[Path]:
        return sorted(self.sink.glob(f"{name}/batch=*.parquet"))

    def _seen(self, name: str) -> Counter[str]:
        tables = (pq.ParquetFile(file).read() for file in self._files(name))
        return Counter(value for table in tables for value in table["value"].to_pylist())

    def _wake_all(self) -> None:
        for pid in self._zombies:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _start_driver(self) -> Driver:
        specs = {name: source.receiver("spark") for name, source in self.sources.items()}
        receivers = {name: [spec.kind, spec.arguments] for name, spec in specs.items()}
        cluster = f"local-cluster[2,{len(receivers) // 2 + 1},512]"
        args = [cluster, str(self.checkpoint), str(self.sink), json.dumps(receivers)]
        return Driver(_PROGRAM, args, self.root / "errors-driver", own_pythons=True)

    def _start_ingest(self, name: str) -> Driver:
        # fmt: off
        command = [
            "ingest", *self.sources[name].receiver("ingest").command,
            "--journal", str(self.checkpoint / "journal"),
            "--stream", name, "--receiver", _RECEIVERS["ingest"],
        ]
        # fmt: on
        return Driver(_COMMAND, command, self.root / f"errors-{name}")


class _Kept:
    """A process that is started again whenever it ends."""

    def __init__(self, start: Callable[[], Driver]) -> None:
        self._start = start
        self._all: list[Driver] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        self._all.append(self._start())
        try:
            with background(self._keep):
                yield
        finally:
            for driver in self._all:
                driver.end()

    @property
    def process(self) -> Forked:
        return self._all[-1].process

    def kill(self) -> None:
        """Kill the process that is there now, and see it die."""
        self._all[-1].kill()

    def is_alone(self) -> bool:
        """Whether all that were replaced have ended."""
        return all(driver.process.poll() is not None for driver in self._all[:-1])

    def replace(self) -> None:
        """Start another one beside the one that is there."""
        self._all.append(self._start())

    def wait_line(self, prefix: str) -> None:
        """Wait until the process, or one that replaced it, reports such a line."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            with suppress(RuntimeError):  # it was killed: ask the next one
                self._all[-1].wait_line(prefix)
                return
            time.sleep(0.1)
        raise TimeoutError(f"no {prefix!r} in {WAIT_S} s")

    def _keep(self, end: threading.Event) -> None:
        while not end.wait(0.3):
            if self.process.poll() is not None:
                self.replace()


class Storm:
    """Strikes a site; a fault counts when it hit a living receiver."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._left: list[partial[None]] = []
        self.struck: Counter[str] = Counter()
        self._failure: BaseException | None = None

    def rage(self, faults: int | None = None) -> None:
        """Strike with so many faults, or with each fault there is, from two threads."""
        self._left = self._draw(faults)
        threads = [threading.Thread(target=self._strike_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _draw(self, faults: int | None) -> list[partial[None]]:
        """Return faults in random order: each one comes before any comes again."""
        drawn: list[partial[None]] = []
        while len(drawn) < (faults or 1):
            drawn += self._random.sample(deck := self._deck(), len(deck))
        return drawn[:faults]

    def _deck(self) -> list[partial[None]]:
        """Return what can strike each source, and the driver's death once for every two."""
        sources = self._site.sources
        strikes = [self.kill_executor, self.kill_worker, self.stop_worker]
        strikes += [self.kill_ingest, self.stop_ingest]
        deck = [partial(strike, name) for name in sources for strike in strikes]
        deck += [partial(self.cut, name) for name in sources if sources[name].has_connections]
        return [*deck, *[partial(self.kill_driver)] * ((len(sources) + 1) // 2)]

    def _strike_on(self) -> None:
        try:
            while (fault := self._next()) is not None:
                time.sleep(self._uniform(0, 1))
                fault()
        except BaseException as failure:
            self._failure = failure

    def _next(self) -> partial[None] | None:
        with self._lock:
            if not self._left or self._failure is not None:
                return None
            fault = self._left.pop()
            self.struck[fault.func.__name__] += 1
            return fault

    def _uniform(self, low: float, high: float) -> float:
        with self._lock:
            return self._random.uniform(low, high)

    # -- the faults --

    def kill_driver(self) -> None:
        assert eventually(lambda: self._site.spark.process.poll() is None)
        self._site.note_receivers()  # they have to end before the site has recovered
        self._site.spark.kill()

    def kill_executor(self, name: str) -> None:
        _until_struck(lambda: self._kill_executor(name))

    def kill_worker(self, name: str) -> None:
        _until_struck(lambda: _kill(self._site.wait_pid(name, "spark")))

    def stop_worker(self, name: str) -> None:
        """Stop a receiver in an executor, kill its executor, and wake it beside its successor."""
        _until_struck(lambda: self._stop_worker(name))

    def kill_ingest(self, name: str) -> None:
        _until_struck(lambda: _kill(self._site.wait_pid(name, "ingest")))

    def stop_ingest(self, name: str) -> None:
        """Stop the ingest process, start another one, and wake the first beside it."""
        zombie = self._site.wait_pid(name, "ingest")
        self._site.will_wake(zombie)
        with suppress(ProcessLookupError):
            os.kill(zombie, signal.SIGSTOP)
        self._site.ingest[name].replace()
        self._wake(name, "ingest", zombie)

    def cut(self, name: str) -> None:
        self._site.sources[name].cut()

    def _kill_executor(self, name: str) -> None:
        receiver = self._site.wait_pid(name, "spark")
        executor = executor_of(receiver)
        os.kill(executor, signal.SIGKILL)
        assert eventually(lambda: not descends_from(receiver, executor))

    def _stop_worker(self, name: str) -> None:
        zombie = self._site.wait_pid(name, "spark")
        self._site.will_wake(zombie)
        orphan_and_stop(zombie)
        self._wake(name, "spark", zombie)

    def _wake(self, name: str, place: str, zombie: int) -> None:
        """Wake a stopped receiver, once its successor has taken over."""
        self._site.wait_pid(name, place, but=zombie)
        with suppress(ProcessLookupError):
            os.kill(zombie, signal.SIGCONT)


def _kill(pid: int) -> None:
    """SIGKILL a process and see it die: until then it would count as one that recovered."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid))


def _until_struck(fault: Callable[[], None]) -> None:
    """Try until the fault finds its victim alive; another one may have just killed it."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        with suppress(ProcessLookupError, FileNotFoundError, LookupError):
            fault()
            return
        time.sleep(0.05)
    raise TimeoutError("there was nothing to strike")

"""A storm: receivers in Spark and in `penstock ingest`, killed, stopped and cut in random order.

Two receivers write one journal stream, one as a Spark task and one as a process of its own; what is
killed is started again, as an operator's tools do. Faults come from two threads, so they overlap:
one strikes while another's recovery is under way.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from tests.faults.driver import Driver
from tests.faults.pids import descends_from, executor_of, is_alive, parent
from tests.faults.sources.source import PLACES, Balance, Source
from tests.waiting import eventually

_PROGRAM = Path(__file__).with_name("source_program.py")
_COMMAND = Path(__file__).with_name("command.py")
_CLUSTER = "local-cluster[2,1,512]"
_PATIENCE_S = 120.0
_RECEIVERS = {"spark": "r0", "ingest": "gate"}


class Site:
    """One checkpoint location, its program and its ingest process, both kept running."""

    def __init__(self, root: Path, source: Source) -> None:
        self.source = source
        self.root = root
        self.sink, self.checkpoint = root / "sink", root / "checkpoint"
        self._zombies: list[int] = []
        self._receivers: set[int] = set()
        self.spark = _Kept(self._start_driver)
        self.ingest = _Kept(self._start_ingest)
        self._kept = {"spark": self.spark, "ingest": self.ingest}

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.callback(self._wake_all)
            stack.enter_context(self.spark.running())
            assert eventually(lambda: self.pid("spark") is not None, _PATIENCE_S), self.errors()
            stack.enter_context(self.ingest.running())
            assert eventually(lambda: self.pid("ingest") is not None, _PATIENCE_S), self.errors()
            yield

    def pid(self, place: str, but: int | None = None) -> int | None:
        """Return the living process of the receiver at a place, None when it has none now."""
        try:
            journal = JournalStream.open(open_storage(self.checkpoint / "journal"), "records")
            status = read_status(journal, _RECEIVERS[place])
        except PenstockError:
            return None
        if status is None or status.pid == but or not is_alive(status.pid):
            return None
        self._receivers.add(status.pid)
        return status.pid

    def wait_pid(self, place: str, but: int | None = None) -> int:
        """Return the receiver's process as soon as there is one, other than ``but``."""
        assert eventually(lambda: self.pid(place, but) is not None, _PATIENCE_S), self.errors()
        return self.pid(place, but) or self.wait_pid(place, but)

    def recovered(self) -> bool:
        """Whether both receivers are those that shall stay, and all before them have ended.

        One that a killed driver left behind is up for a while, and so is one that a later one has
        fenced: both end soon, with what they have read and not stored.
        """
        current = {place: self.pid(place) for place in PLACES}
        stay = all(
            pid is not None and descends_from(pid, self._kept[place].process.pid)
            for place, pid in current.items()
        )
        gone = {*self._receivers, *self._zombies} - {*current.values()}
        alone = all(kept.is_alone() for kept in self._kept.values())
        return stay and alone and not any(map(is_alive, gone))

    def state(self) -> str:
        """Return what is up, for the message of a failed test."""
        receivers = {place: self.pid(place) for place in PLACES}
        ends = {place: kept.process.poll() for place, kept in self._kept.items()}
        zombies = [pid for pid in self._zombies if is_alive(pid)]
        return f"receivers {receivers}, ends {ends}, woken and alive {zombies}\n{self.errors()}"

    def stop(self, pid: int) -> None:
        """SIGSTOP a process; it is woken when the site ends, if not before."""
        self._zombies.append(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def balance(self) -> Balance:
        """Compare what is in the sink now with the source's ledger."""
        files = sorted(self.sink.glob("batch=*/*.parquet"))
        tables = (pq.ParquetFile(file).read() for file in files)
        return self.source.balance(Counter(v for t in tables for v in t["value"].to_pylist()))

    def twice(self) -> str:
        """Return in which files of the sink records are that came twice, for a failed test.

        Two writes (the hex digits in the files' names) of one batch are Spark's, which wrote it
        over; two batches are the journal's, which has them twice.
        """
        places: dict[str, list[str]] = {}
        for file in sorted(self.sink.glob("batch=*/*.parquet")):
            where = f"{file.parent.name}/{file.name[:19]}"
            for value in pq.ParquetFile(file).read(["value"])["value"].to_pylist():
                places.setdefault(value, []).append(where)
        counts = Counter(tuple(files) for files in places.values() if len(files) > 1)
        return "\n".join(f"{count} in {', '.join(files)}" for files, count in counts.items())

    def settle(self) -> Balance:
        """Wait until nothing is missing, and until what may still come has come."""
        eventually(lambda: not self.balance().lost, _PATIENCE_S)
        for _ in range(3):
            self.spark.wait_line("committed")
        return self.balance()

    def errors(self) -> str:
        """Return the end of what driver and ingest process wrote, from their last traceback on."""
        logs = [log for name in ("driver", "ingest") if (log := self.root / f"{name}.txt").exists()]
        texts = [log.read_text(errors="replace") for log in logs]
        return "\n".join(text[max(text.rfind("Traceback"), 0) :][-1500:] for text in texts)

    def _wake_all(self) -> None:
        for pid in self._zombies:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _start_driver(self) -> Driver:
        spec = self.source.receiver("spark")
        receiver = json.dumps([spec.kind, spec.arguments])
        args = [_CLUSTER, str(self.checkpoint), str(self.sink), receiver]
        return Driver(_PROGRAM, args, self.root / "driver.txt")

    def _start_ingest(self) -> Driver:
        # fmt: off
        command = [
            "ingest", *self.source.receiver("ingest").command,
            "--journal", str(self.checkpoint / "journal"),
            "--stream", "records", "--receiver", _RECEIVERS["ingest"],
        ]
        # fmt: on
        return Driver(_COMMAND, command, self.root / "ingest.txt")


class _Kept:
    """A process that is started again whenever it ends."""

    def __init__(self, start: Callable[[], Driver]) -> None:
        self._start = start
        self._ending = threading.Event()
        self._all: list[Driver] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        self._all.append(self._start())
        keeper = threading.Thread(target=self._keep)
        keeper.start()
        try:
            yield
        finally:
            self._ending.set()
            keeper.join()
            for driver in self._all:
                driver.end()

    @property
    def process(self) -> subprocess.Popen[str]:
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
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(RuntimeError):  # it was killed: ask the next one
                self._all[-1].wait_line(prefix, _PATIENCE_S)
                return
            time.sleep(0.1)
        raise TimeoutError(f"no {prefix!r} in {_PATIENCE_S} s")

    def _keep(self) -> None:
        while not self._ending.wait(0.3):
            if self.process.poll() is not None:
                self.replace()


class Storm:
    """Strikes a site with so many faults; a fault counts when it hit a living receiver."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._left = 0
        self.struck: Counter[str] = Counter()
        self._failure: BaseException | None = None

    def rage(self, faults: int) -> None:
        """Strike ``faults`` times, from two threads."""
        self._left = faults
        threads = [threading.Thread(target=self._strike_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _strike_on(self) -> None:
        try:
            while (fault := self._next()) is not None:
                time.sleep(self._uniform(0, 2))
                fault()
        except BaseException as failure:
            self._failure = failure

    def _next(self) -> Callable[[], None] | None:
        """Draw the next fault: each kind comes before any comes again."""
        kinds = [self.cut] if self._site.source.has_connections else []
        kinds += [
            self.kill_driver,
            self.kill_executor,
            self.kill_worker,
            self.stop_worker,
            self.kill_ingest,
            self.stop_ingest,
        ]
        with self._lock:
            if self._left == 0 or self._failure is not None:
                return None
            self._left -= 1
            rarest = min(self.struck[kind.__name__] for kind in kinds)
            fault = self._random.choice([k for k in kinds if self.struck[k.__name__] == rarest])
            self.struck[fault.__name__] += 1
            return fault

    def _uniform(self, low: float, high: float) -> float:
        with self._lock:
            return self._random.uniform(low, high)

    # -- the faults --

    def kill_driver(self) -> None:
        assert eventually(lambda: self._site.spark.process.poll() is None, _PATIENCE_S)
        self._site.pid("spark")  # noted: it has to end before the site has recovered
        self._site.spark.kill()

    def kill_executor(self) -> None:
        _until_struck(self._kill_executor)

    def kill_worker(self) -> None:
        _until_struck(lambda: _kill(self._site.wait_pid("spark")))

    def stop_worker(self) -> None:
        """Stop a receiver in an executor, kill its executor, and wake it beside its successor."""
        _until_struck(self._stop_worker)

    def kill_ingest(self) -> None:
        _until_struck(lambda: _kill(self._site.wait_pid("ingest")))

    def stop_ingest(self) -> None:
        """Stop the ingest process, start another one, and wake the first beside it."""
        zombie = self._site.wait_pid("ingest")
        self._site.stop(zombie)
        self._site.ingest.replace()
        self._wake(zombie, "ingest")

    def cut(self) -> None:
        self._site.source.cut()

    def _kill_executor(self) -> None:
        receiver = self._site.wait_pid("spark")
        executor = executor_of(receiver)
        os.kill(executor, signal.SIGKILL)
        assert eventually(lambda: not descends_from(receiver, executor), _PATIENCE_S)

    def _stop_worker(self) -> None:
        zombie = self._site.wait_pid("spark")
        executor, daemon = executor_of(zombie), parent(zombie)
        # The daemon would end the zombie, and the kernel hangs up on a process group that has a
        # stopped member when it is orphaned: so orphan it first, stop it before it notices.
        os.kill(daemon, signal.SIGKILL)
        self._site.stop(zombie)
        with suppress(ProcessLookupError):
            os.kill(executor, signal.SIGKILL)
        self._wake(zombie, "spark")

    def _wake(self, zombie: int, place: str) -> None:
        """Wake a stopped receiver, once its successor has taken over."""
        self._site.wait_pid(place, but=zombie)
        with suppress(ProcessLookupError):
            os.kill(zombie, signal.SIGCONT)


def _kill(pid: int) -> None:
    """SIGKILL a process and see it die: until then it would count as one that recovered."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid), _PATIENCE_S)


def _until_struck(fault: Callable[[], None]) -> None:
    """Try until the fault finds its victim alive; another one may have just killed it."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        with suppress(ProcessLookupError, FileNotFoundError, LookupError):
            fault()
            return
        time.sleep(0.05)
    raise TimeoutError("there was nothing to strike")

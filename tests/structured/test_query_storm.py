"""A storm over queries that write exactly once, into three sinks: nothing lost, nothing doubled.

Each of two queries, over a journal and over a topic, writes to Parquet, PostgreSQL and a topic.
What is killed at random: the driver, its executor, the processes that plan for the queries, the
workers of tasks, the receiver in the executor, and an ``ingest`` process of the same stream.
Lines come all the while, from files with positions and from a producer that does not double.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event

import pyarrow.dataset as ds
import pytest

from penstock.errors import PenstockError
from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from penstock.structured.sinks import published_files
from tests.background import background
from tests.faults.driver import Driver
from tests.faults.ledger import LogWriter
from tests.faults.pids import is_alive
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed
from tests.kafka.test_kills import Sender
from tests.seeds import storm_seed
from tests.structured.postgres import Server, needs_postgres
from tests.structured.storm_program import SOURCES, Places
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_postgres]

PROGRAM = Path(__file__).with_name("storm_program.py")
COMMAND = Path(__file__).parents[1] / "faults" / "command.py"
MASTER = "local-cluster[1,3,512]"
KILLS = {"driver": 1, "executor": 2, "planner": 5, "worker": 5, "receiver": 4, "ingest": 3}
"""How many of each in 20."""
TABLE = "CREATE TABLE lines (source TEXT, value TEXT)"
PLACES = ("spark", "ingest")
_SOON = 5
"""So many kills before it is needed, the next program is started."""


class Site:
    """The servers, the program and the ingest process, which are kept running."""

    def __init__(self, root: Path, broker: Broker, server: Server, moments: random.Random) -> None:
        self._root = root
        self._broker = broker
        self._server = server
        self._moments = moments
        self._writers = dict[str, LogWriter]()
        for place in PLACES:
            (root / place).mkdir()
            self._writers[place] = LogWriter(root / place, prefix=f"{place} line ")
        self._topic = f"storm-{uuid.uuid4().hex}"
        self._sender = Sender(broker, self._topic)
        self._sender.partitions = 1
        logs = str(root / "spark")
        self.places = Places(str(root), logs, broker.address, self._topic, server.url)
        self._past = list[Driver]()
        self._drivers = list[Driver]()
        """The program that runs, and one that waits to replace it."""
        self._ingests = list[Driver]()
        self.struck: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep everything running, and lines coming until the end of the block; then settle."""
        with ExitStack() as stack:
            stack.callback(self._end)
            self.stand_by()
            self._make_tables()
            self._start_ingest()
            stack.enter_context(background(self._keep_ingest))
            with ExitStack() as sending:
                for writer in self._writers.values():
                    sending.enter_context(writer.running(pause_s=0.1))
                sending.enter_context(self._sender.running())
                self.driver.begin()
                yield
            self.settle()

    # -- the program --

    def stand_by(self) -> None:
        """Start the next program, which waits: most of a start is that of Spark."""
        if len(self._drivers) < 2:
            arguments = [MASTER, self.places.encoded()]
            self._drivers.append(
                Driver(PROGRAM, arguments, self._root / "stderr.txt", own_pythons=True)
            )

    @property
    def driver(self) -> Driver:
        return self._drivers[0]

    # -- the kills --

    def strike(self, kind: str) -> None:
        """Kill one of a kind, some time from now."""
        time.sleep(self._moments.uniform(0, 0.5))
        if kind == "driver":
            self._kill_driver()
        else:
            self._kill(kind)
        self.struck[kind] += 1

    def _kill_driver(self) -> None:
        """Kill all of its session, or it alone: then its JVM lives on for a moment."""
        self.stand_by()
        old = self._drivers.pop(0)
        self._past.append(old)
        old.end() if self._moments.random() < 0.5 else old.kill()
        self.driver.begin()

    def _kill(self, kind: str) -> None:
        found: Callable[[], list[int]] = {
            "executor": lambda: self._processes(b"CoarseGrainedExecutorBackend"),
            "planner": lambda: self._processes(b"python_streaming_source_runner"),
            "worker": lambda: self._processes(b"worker_daemon"),
            "receiver": self._receivers,
            "ingest": lambda: [self._ingests[-1].process.pid],
        }[kind]
        killed = list[int]()

        def is_killed() -> bool:
            candidates = found()
            if candidates:
                pid = self._moments.choice(candidates)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            return bool(killed)

        assert eventually(is_killed), f"no {kind}: {self.errors()}"

    def _processes(self, name: bytes) -> list[int]:
        """Return the program's processes whose command has a word."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                # Not by descent: workers outlive their daemon.
                is_its = os.getsid(pid) == self.driver.process.pid
                if is_its and name in (folder / "cmdline").read_bytes():
                    found.append(pid)
        return found

    def _receivers(self) -> list[int]:
        with suppress(PenstockError):
            stream = JournalStream.open(open_storage(self.places.journal), "s")
            status = read_status(stream, "r0")
            if status is not None and status.state == "started" and is_alive(status.pid):
                return [status.pid]
        return []

    # -- the ingest process --

    def _start_ingest(self) -> None:
        logs = str(self._root / "ingest" / "app.log*")
        where = ["--journal", self.places.journal, "--stream", "s", "--receiver", "gate"]
        command = ["ingest", "tail", logs, *where]
        self._ingests.append(Driver(COMMAND, command, self._root / "ingest.txt"))

    def _keep_ingest(self, end: Event) -> None:
        while not end.wait(0.1):
            if self._ingests[-1].process.poll() is not None:
                self._ingests[-1].end()
                self._start_ingest()

    # -- what came --

    def sent(self, source: str) -> Counter[str]:
        if source == "penstock":
            return Counter(line for each in self._writers.values() for line in each.lines())
        return Counter(f"line {number}" for number in range(self._sender.sent))

    @property
    def sent_in_all(self) -> dict[str, int]:
        return {source: self.sent(source).total() for source in SOURCES}

    def came(self, source: str) -> dict[str, Counter[str]]:
        """Return the lines in each sink."""
        import psycopg

        query = f"SELECT value FROM lines WHERE source = '{source}'"
        with psycopg.connect(self._server.url) as server:
            postgres = Counter(value for (value,) in server.execute(query))
        files = [
            url.removeprefix("file://") for url in published_files(self.places.parquet(source))
        ]
        values = ds.dataset(files).to_table(["value"])["value"].to_pylist() if files else []
        topic = committed(self._broker, self.places.out(source))
        return {
            "parquet": Counter(values),
            "postgres": postgres,
            "topic": topic,
        }

    def settle(self) -> None:
        """Wait until all that was sent is in each sink, for as long as more of it comes."""
        while missing := self._missing():
            some_came = partial(self._is_less_missing, missing)
            assert eventually(some_came), f"{self.told()}\n{self.errors()}"

    def _is_less_missing(self, than: int) -> bool:
        return self._missing() < than

    def _missing(self) -> int:
        """Return how many lines are not in a sink, over all sinks."""
        return sum(
            (self.sent(source) - found).total()
            for source in SOURCES
            for found in self.came(source).values()
        )

    def told(self) -> str:
        """Return what is lost or doubled, empty if nothing is."""
        wrong = []
        for source in SOURCES:
            sent = self.sent(source)
            for sink, found in self.came(source).items():
                lost, more = sent - found, found - sent
                if lost or more:
                    few = [*list(lost)[:3], *list(more)[:3]]
                    wrong.append(f"{source} -> {sink}: {len(lost)} lost, {len(more)} more: {few}")
        return "\n".join(wrong)

    def errors(self) -> str:
        return "\n".join(each.log()[-3000:] for each in (self.driver, self._ingests[-1]))

    def _make_tables(self) -> None:
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as server:
            server.execute(TABLE)
        self._broker.create_topic(self._topic)
        for source in SOURCES:
            self._broker.create_topic(self.places.out(source))

    def _end(self) -> None:
        for each in (*self._past, *self._drivers, *self._ingests):
            each.end()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.mark.storm
@pytest.mark.parametrize(
    "kills", [20, pytest.param(200, marks=pytest.mark.soak)], ids=["twenty", "two-hundred"]
)
def test_nothing_is_lost_or_doubled(
    tmp_path: Path, broker: Broker, server: Server, kills: int
) -> None:
    seed = storm_seed()
    moments = random.Random(seed)
    site = Site(tmp_path, broker, server, moments)
    kinds = [kind for kind, often in KILLS.items() for _ in range(often * kills // 20)]
    moments.shuffle(kinds)
    with site.running():
        site.driver.wait_batches(2)
        for number, kind in enumerate(kinds):
            if "driver" in kinds[number : number + _SOON]:
                site.stand_by()
            site.strike(kind)
            if number % 4 == 3:  # else they overlap
                site.driver.wait_batches(1)
    told = f"seed {seed}, {dict(site.struck)}, sent {site.sent_in_all}"
    print(told)
    assert not site.told(), f"{told}\n{site.told()}"

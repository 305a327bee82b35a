"""Batches to tables of real databases: two of everything, kills, zombies. Without Spark."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Barrier
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, SinkError
from penstock.model import OutputBatch
from penstock.structured.sinks.staging import (
    TOKENS,
    Database,
    Loaded,
    Newest,
    Stage,
    Target,
    begin,
    publish,
    quoted,
)
from tests.forked import run_all_forked, run_forked
from tests.structured.postgres import Server, needs_postgres
from tests.waiting import eventually

ROWS = 6
COLUMNS = ["id", "text"]
METHODS = ("find", "newest", "columns", "create_stage", "load", "publish", "stages", "drop_stages")
_number = count()
pytestmark = [needs_postgres, pytest.mark.slow]


@dataclass(frozen=True)
class Place:
    """A database, and a table of a test's own."""

    database: Database
    table: str
    query: Callable[[str], list[tuple[Any, ...]]]
    other_name: str
    """The same table's."""

    def ids(self) -> Counter[str]:
        """Return what is in the table."""
        return Counter(row[0] for row in self.query(f"SELECT id FROM {self.table}"))

    def stages(self) -> list[str]:
        """Return the staging tables that there are."""
        target = begin(self.database, self.table, OutputBatch("q", "out", 10**6), COLUMNS)
        assert target is not None
        found = self.database.stages(target.target)
        self.database.drop_stages(target.target, [target.name])
        return [name for name in found if name != target.name]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def place(server: Server) -> Place:
    return postgres_place(server)


def postgres_place(server: Server) -> Place:
    import psycopg

    def query(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(server.url, autocommit=True) as db:
            found = db.execute(sql)  # type: ignore[arg-type,unused-ignore]
            return found.fetchall() if found.description else []

    schema = f"shop{next(_number)}"
    query(f"CREATE SCHEMA {schema}")
    query(f"CREATE TABLE {schema}.orders (id text NOT NULL, text text, seen int DEFAULT 7)")
    url = f"{server.url}&options=-csearch_path%3D{schema}%2Cpublic"
    return Place(postgres_at(url), f"{schema}.orders", query, "orders")


def postgres_at(url: str) -> Database:
    from penstock.structured.sinks.postgres import Postgres

    return Postgres(url)


def rows_of(batch_id: int, index: int, partitions: int) -> pa.RecordBatch:
    ids = [f"{batch_id}-{number}" for number in range(index, ROWS, partitions)]
    return pa.record_batch([pa.array(ids), pa.array(ids)], names=COLUMNS)


def expected(batches: int) -> Counter[str]:
    return Counter(f"{batch}-{number}" for batch in range(batches) for number in range(ROWS))


def write(database: Database, table: str, batch_id: int, partitions: int) -> bool:
    stage = begin(database, table, OutputBatch("q", "out", batch_id), COLUMNS)
    if stage is None:
        return False
    loaded = []
    for index in range(partitions):
        rows, mark = rows_of(batch_id, index, partitions), f"task-{index}"
        loaded.append(Loaded(mark, database.load(stage, mark, [rows])))
    publish(database, stage, loaded)
    return True


def test_a_batch_that_runs_twice_is_written_once(place: Place) -> None:
    assert write(place.database, place.table, 0, 2)
    assert not write(place.database, place.table, 0, 3)
    assert write(place.database, place.table, 1, 3)
    assert place.ids() == expected(2)
    assert place.query(f"SELECT DISTINCT seen FROM {place.table}") == [(7,)]
    assert place.stages() == []


def test_behind_a_pooler_instants_stay_and_batches_are_durable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives each transaction another session, whose settings are the database's."""
    import psycopg

    class Pooled(psycopg.Connection[Any]):
        def execute(self, *args: Any, **options: Any) -> Any:
            done = super().execute(*args, **options)
            if self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                super().execute("DISCARD ALL")
            return done

    place = postgres_place(server)
    place.query(
        f"ALTER TABLE {place.table} ADD at timestamptz, ADD sync text DEFAULT "
        "current_setting('synchronous_commit')"
    )
    monkeypatch.setattr(psycopg, "connect", Pooled.connect)
    settings = "-ctimezone=Asia/Tokyo -csynchronous_commit=off"
    database = postgres_at(f"{server.url}&options={quote(settings)}")
    columns = ["id", "at"]
    stage = begin(database, place.table, OutputBatch("q", "out", 0), columns)
    assert stage is not None
    at = pa.array([0], pa.timestamp("us", "UTC"))
    rows = pa.record_batch([pa.array(["a"]), at], names=columns)
    publish(database, stage, [Loaded("task", database.load(stage, "task", [rows]))])
    found = place.query(f"SELECT extract(epoch from at)::int, sync FROM {place.table}")
    assert found == [(0, "on")]
    assert place.stages() == []


def test_a_zombie_that_wakes_later_writes_nothing(place: Place) -> None:
    zombies = []
    for step in range(3):  # asleep before, within and after its tasks
        stage = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
        assert stage is not None
        loads = [(f"task-{index}", rows_of(0, index, 2)) for index in range(2)]
        for mark, rows in loads[:step]:
            place.database.load(stage, mark, [rows])
        zombies.append((stage, loads[step:]))
    assert write(place.database, place.table, 0, 1)
    assert write(place.database, place.table, 1, 1)
    for stage, left in zombies:
        with pytest.raises(Exception, match=r"stage|is written already"):
            _wake(place.database, stage, left)
    assert place.ids() == expected(2)


def _wake(database: Database, stage: Stage, left: list[tuple[str, pa.RecordBatch]]) -> None:
    for mark, rows in left:
        database.load(stage, mark, [rows])
    publish(database, stage, [Loaded(f"task-{index}", ROWS // 2) for index in range(2)])


def test_of_two_that_publish_one_counts(place: Place) -> None:
    output = OutputBatch("q", "out", 0)
    stages = [begin(place.database, place.table, output, COLUMNS) for _ in range(2)]
    for stage in stages:
        assert stage is not None
        place.database.load(stage, "mark", [rows_of(0, 0, 1)])
        place.database.publish(stage, ["mark"], ROWS)
    assert place.ids() == expected(1)
    write(place.database, place.table, 1, 1)
    with pytest.raises(SinkError, match="batch 0 is to be written, but batch 1 is written"):
        write(place.database, place.table, 0, 1)


def test_what_tasks_copied_that_the_driver_does_not_know_does_not_count(place: Place) -> None:
    stage = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
    assert stage is not None
    for mark in ("killed", "speculative", "known"):
        place.database.load(stage, mark, [rows_of(0, 0, 1)])
    publish(place.database, stage, [Loaded("known", ROWS)])
    assert place.ids() == expected(1)


def test_a_staging_table_that_lacks_rows(place: Place) -> None:
    stage = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
    assert stage is not None
    loaded = [Loaded("mark", place.database.load(stage, "mark", [rows_of(0, 0, 1)]))]
    with pytest.raises(SinkError, match="lacks some of the 12 rows"):
        publish(place.database, stage, [*loaded, *loaded])
    assert place.ids() == Counter()
    assert write(place.database, place.table, 0, 1)
    assert place.ids() == expected(1)


def test_outputs_and_tables_are_apart(place: Place) -> None:
    stage = begin(place.database, place.table, OutputBatch("q", "other", 5), COLUMNS)
    assert stage is not None
    publish(place.database, stage, [])  # a batch without rows
    assert write(place.database, place.table, 0, 1)
    tokens = stage.target.beside(TOKENS)
    assert sorted(place.query(f"SELECT application, batch_id FROM {tokens}")) == [
        ("q/other", 5),
        ("q/out", 0),
    ]


def test_a_table_or_column_that_does_not_exist(place: Place) -> None:
    output = OutputBatch("q", "out", 0)
    problem = r"has no column 'price'\. Hint: it has 'id', 'text', 'seen'"
    with pytest.raises(ConfigError, match=problem):
        begin(place.database, place.table, output, ["id", "price"])
    with pytest.raises(ConfigError, match="there is no table nothing"):
        begin(place.database, "nothing", output, ["id"])


def test_a_driver_that_is_overtaken_leaves_no_staging_table(place: Place) -> None:
    late = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
    assert late is not None
    write(place.database, place.table, 1, 1)
    place.database.create_stage(late)  # as if it had slept between its look and this
    with pytest.raises(SinkError, match="but batch 1 is written"):
        publish(place.database, late, [])
    assert place.stages() == []


def test_drivers_at_once(place: Place) -> None:
    steps = [partial(_run_beside_others, place.database, place.table, n) for n in (1, 2, 3)]
    assert run_all_forked(steps) == {0}
    assert place.ids() == expected(5)
    assert place.stages() == []


def test_first_drivers_at_once(place: Place) -> None:
    """Each finds the table of tokens missing, and makes it."""
    target = place.database.find(place.table, "q")
    with ThreadPoolExecutor(6) as threads:
        for _ in range(40):
            place.query(f"DROP TABLE IF EXISTS {target.beside(TOKENS)}")
            ready = Barrier(6)
            found = [threads.submit(_newest, place.database, target, ready) for _ in range(6)]
            assert [each.result() for each in found] == [Newest()] * 6


def _newest(database: Database, target: Target, ready: Barrier) -> Newest:
    ready.wait()
    return database.newest(target)


def _run_beside_others(database: Database, table: str, partitions: int) -> None:
    for batch_id in range(5):
        with suppress(SinkError):  # another one is ahead
            write(_Retrying(database), table, batch_id, partitions)


class _Retrying:
    """A driver whose staging table was dropped finds, when it runs again, that it was overtaken."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._database, name)

        def call(*args: Any) -> Any:
            try:
                return method(*args)
            except Exception as error:
                if "stage" in str(error):
                    raise SinkError("the staging table was dropped") from error
                raise

        return call


def test_kills_at_each_step(place: Place) -> None:
    batch = count()
    for method in METHODS:
        for after in (False, True):
            batch_id = next(batch)
            killed = partial(_run_killed, place.database, place.table, batch_id, method, after)
            assert run_forked(killed) == -signal.SIGKILL
            write(place.database, place.table, batch_id, 3)
            assert place.ids() == expected(batch_id + 1)
    assert place.stages() == []


def _run_killed(database: Database, table: str, batch_id: int, method: str, after: bool) -> None:
    write(_Killed(database, method, after=after), table, batch_id, 2)


class _Killed:
    def __init__(self, database: Database, method: str, *, after: bool) -> None:
        self._database, self._method, self._after = database, method, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._database, name)

        def call(*args: Any) -> Any:
            if name == self._method and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            method(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return call if name == self._method else method


def test_a_driver_that_is_killed_while_its_statement_waits(server: Server) -> None:
    import psycopg

    place = postgres_place(server)
    write(place.database, place.table, 0, 1)
    tokens = place.table.replace("orders", TOKENS)
    with psycopg.connect(server.url) as blocker:
        blocker.execute(f"UPDATE {tokens} SET batch_id = batch_id")  # type: ignore[arg-type,unused-ignore]
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        killed = threading.Thread(target=_run_and_kill, args=(place, waits))
        killed.start()
        killed.join()
    write(place.database, place.table, 1, 2)
    assert place.ids() == expected(2)


def _run_and_kill(place: Place, waits: str) -> None:
    from tests.forked import FORKS

    process = FORKS.Process(target=write, args=(place.database, place.table, 1, 1))
    process.start()
    assert eventually(lambda: place.query(waits))
    process.kill()
    process.join()


def test_a_server_that_crashes_under_a_batch(server: Server) -> None:
    place = postgres_place(server)
    stage = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
    assert stage is not None
    loaded = [Loaded("mark", place.database.load(stage, "mark", [rows_of(0, 0, 1)]))]
    server.kill()
    server.start()
    with pytest.raises(SinkError, match="lacks some of the 6 rows tasks copied"):
        publish(place.database, stage, loaded)
    assert place.ids() == Counter()
    assert write(place.database, place.table, 0, 1)
    assert place.ids() == expected(1)


TEXTS: Sequence[str | None] = [
    None,
    "",
    "\\.",
    "a\n\\.\nb",
    "q\"uo'te,\t",
    "\\N",
    "NULL",
    "žluť 🐎",
    " x ",
]


def test_texts_arrive_as_they_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = begin(place.database, place.table, OutputBatch("q", "out", 0), COLUMNS)
    assert stage is not None
    ids = [str(number) for number in range(len(TEXTS))]
    rows = pa.record_batch([pa.array(ids), pa.array(TEXTS)], names=COLUMNS)
    with monkeypatch.context() as patch:
        patch.setenv("PGCLIENTENCODING", "LATIN1")
        publish(place.database, stage, [Loaded("m", place.database.load(stage, "m", [rows]))])
    assert dict(place.query(f"SELECT id, text FROM {place.table}")) == dict(
        zip(ids, TEXTS, strict=True)
    )


def test_columns_of_any_name(place: Place) -> None:
    names = ["a.b", "50% off", "%(marks)s", 'say "it"', "select"]
    columns = ", ".join(f"{quoted(name)} TEXT" for name in names)
    place.query(f"CREATE TABLE odd ({columns})")
    stage = begin(place.database, "odd", OutputBatch("q", "out", 0), names)
    assert stage is not None
    row = pa.record_batch([pa.array([name]) for name in names], names=names)
    publish(place.database, stage, [Loaded("m", place.database.load(stage, "m", [row]))])
    assert place.query("SELECT * FROM odd") == [tuple(names)]
    place.query("DROP TABLE odd")


def test_one_table_by_two_names_is_one(place: Place) -> None:
    assert write(place.database, place.table, 0, 1)
    assert not write(place.database, place.other_name, 0, 1)
    assert place.ids() == expected(1)


def test_staging_tables_are_dropped_wherever_the_table_of_tokens_is(server: Server) -> None:
    place = postgres_place(server)
    schema = place.table.partition(".")[0]
    place.query(f"CREATE SCHEMA {schema}_first")
    path = postgres_at(f"{server.url}&options=-csearch_path%3D{schema}_first%2C{schema}")
    assert write(path, "orders", 0, 1)
    assert not write(place.database, place.table, 0, 1)
    left = "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
    own = f"{left} WHERE nspname IN ('{schema}', '{schema}_first')"
    assert place.query(f"{own} AND relname LIKE 'penstock_stage%'") == []
    assert place.query(f"{own} AND relname = '{TOKENS}'") == [(schema, TOKENS)]


def test_a_password_is_in_no_text_and_no_pickle() -> None:
    pytest.importorskip("psycopg")
    from penstock.structured.sinks import PostgresSink

    sink = PostgresSink("postgresql://ann:tell-nobody@localhost/shop", "orders")
    assert "tell-nobody" not in repr(sink) + repr(vars(sink))
    with pytest.raises(ConfigError, match="passfile"):
        pickle.dumps(sink)
    pickle.dumps(PostgresSink("postgresql://ann@localhost/shop?passfile=/run/p", "orders"))
    with pytest.raises(ConfigError, match="cannot be parsed") as raised:
        PostgresSink("postgresql://ann:tell-nobody@[/shop", "orders")
    assert "tell-nobody" not in str(raised.value)

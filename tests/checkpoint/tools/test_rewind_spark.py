"""Queries of Spark that are run, stopped, sent back and started again by Spark itself."""

from __future__ import annotations

import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.tools import (
    apply_fork,
    apply_plan,
    inspect,
    plan_fork,
    plan_promote,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.errors import CheckpointError
from tests.waiting import eventually

from .conftest import FILES, ROCKS_DB, file_rows, settings, write_inputs
from .interruptions import interrupt

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


class Sink:
    """A sink in memory that recognizes batch ids, and can fail."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = sorted(str(row[0]) for row in frame.collect())

    def rows(self, batch_ids: range | None = None) -> Counter[str]:
        ids = self.batches if batch_ids is None else batch_ids
        return Counter(row for batch_id in ids for row in self.batches.get(batch_id, []))


def read_files(session: SparkSession, inputs: Path, place: Path, sink: Sink) -> None:
    """Run a query without state over files, one a batch, until it has read all that is there."""
    reader = session.readStream.schema("key string, time timestamp")
    rows = reader.option("maxFilesPerTrigger", 1).json(str(inputs)).select("time")
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(place))
    with settings(session, {"spark.sql.streaming.fileSource.log.compactInterval": "2"}):
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(scope="module")
def read(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sink]:
    """What such a query leaves, with its inputs beside it; tests copy it to change it."""
    from pyspark.sql import SparkSession

    folder, sink = tmp_path_factory.mktemp("read"), Sink()
    write_inputs(folder / "in")
    read_files(SparkSession(sc), folder / "in", folder / "location", sink)
    assert list(sink.batches) == list(range(FILES))
    return folder / "location", sink


@pytest.fixture
def session(sc: SparkContext) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


def sound(place: Path) -> list[str]:
    return [f.path for f in validate(place).findings if f.severity == "error"]


def copy_of(place: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a copy of a location, and of the inputs beside it (their log names the originals)."""
    return Path(shutil.copytree(place, tmp_path / "location")), place.parent / "in"


def test_a_query_over_files_reads_again_what_came_after(
    session: SparkSession, read: tuple[Path, Sink], tmp_path: Path
) -> None:
    """Twice, the second time with settings: its output is that of the run that never stopped."""
    whole = read[1]
    location, inputs = copy_of(read[0], tmp_path)

    apply_plan(plan_rewind(location, to_batch=1))
    assert sound(location) == []
    assert inspect(location).next.first == FILES + 2
    again = Sink()
    read_files(session, inputs, location, again)
    assert list(again.batches) == [FILES + 2]  # a new id
    assert whole.rows(range(2)) + again.rows() == whole.rows()
    assert sound(location) == []

    apply_plan(plan_promote(location, 3))
    again = Sink()
    read_files(session, inputs, location, again)
    assert list(again.batches) == [FILES + 5]
    assert whole.rows(range(4)) + again.rows() == whole.rows()
    assert sound(location) == []


def test_a_rewind_that_was_taken_back_changes_nothing_for_spark(
    session: SparkSession, read: tuple[Path, Sink], tmp_path: Path
) -> None:
    location, inputs = copy_of(read[0], tmp_path)

    apply_plan(plan_undo(apply_plan(plan_rewind(location, to_batch=0))))
    again = Sink()
    read_files(session, inputs, location, again)

    assert again.batches == {}
    assert inspect(location).next.first == FILES


def test_a_batch_that_failed_is_read_by_a_new_one(
    session: SparkSession, read: tuple[Path, Sink], tmp_path: Path
) -> None:
    """Batch 4 has no commit: after the rewind it does not run again under its id."""
    whole = read[1]
    location, inputs = copy_of(read[0], tmp_path)
    for name in (f"commits/{FILES - 1}", f"commits/.{FILES - 1}.crc"):
        (location / name).unlink()

    apply_plan(plan_rewind(location, to_batch=2))
    again = Sink()
    read_files(session, inputs, location, again)

    assert list(again.batches) == [FILES + 2]
    assert whole.rows(range(3)) + again.rows() == whole.rows()


def test_spark_refuses_half_a_change(
    session: SparkSession, read: tuple[Path, Sink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import StreamingQueryException

    location, inputs = copy_of(read[0], tmp_path)
    interrupt(plan_rewind(location, to_batch=1), monkeypatch, after=1)
    again = Sink()
    with pytest.raises(StreamingQueryException, match="More than Int"):
        read_files(session, inputs, location, again)
    assert again.batches == {}

    (undo,) = (location / "undo").iterdir()
    apply_plan(plan_undo(undo))
    read_files(session, inputs, location, again)
    assert again.batches == {}


def start_rate(session: SparkSession, place: Path, sink: Sink) -> StreamingQuery:
    """Start a query over the rate source."""
    rows = session.readStream.format("rate").option("rowsPerSecond", 5).load().select("value")
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(place))
    return writer.start()


def run_rate(session: SparkSession, place: Path, enough: Callable[[Sink], bool]) -> Sink:
    """Run such a query until its sink has enough."""
    sink = Sink()
    query = start_rate(session, place, sink)
    try:
        assert eventually(lambda: enough(sink))
    finally:
        query.stop()
    return sink


def test_a_query_over_rate_reads_again_what_came_after(
    session: SparkSession, tmp_path: Path
) -> None:
    location = tmp_path / "location"
    before = run_rate(session, location, lambda sink: len(sink.batches) > 3)
    first = before.rows(range(2))
    seen = before.rows()

    apply_plan(plan_rewind(location, to_batch=1))
    new_id = inspect(location).next.first
    again = run_rate(session, location, lambda sink: (first + sink.rows()) >= seen)

    assert min(again.batches) == new_id > max(before.batches)
    assert set((first + again.rows()).values()) == {1}  # none is missing, none comes twice
    assert sound(location) == []

    rewind_while_it_runs(session, location)


def rewind_while_it_runs(session: SparkSession, location: Path) -> None:
    """Send a query back that runs: it fails by itself, and nothing is damaged."""
    query = start_rate(session, location, Sink())

    def is_sent_back() -> bool:
        try:
            apply_plan(plan_rewind(location, shift_by=2))
        except CheckpointError:  # the query was first with its next batch
            return False
        return True

    try:
        assert eventually(lambda: bool(query.lastProgress))
        assert eventually(is_sent_back)
        assert eventually(lambda: query.exception() is not None)  # whatever it met first
    finally:
        query.stop()
    assert sound(location) == []
    assert inspect(location).next.rerun == ()


@pytest.fixture
def sender() -> Iterator[int]:
    """Sends the same lines on each connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), ExitStack() as connections:
                while True:
                    connection = connections.enter_context(server.accept()[0])
                    connection.sendall(b"".join(b"line %d\n" % number for number in range(9)))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_spark_starts_no_query_over_a_socket_again(
    session: SparkSession, tmp_path: Path, sender: int
) -> None:
    """Its offsets begin anew, changed or not: so there is nothing that a rewind could keep."""
    from pyspark.errors import StreamingQueryException

    def start(sink: Sink) -> StreamingQuery:
        lines = session.readStream.format("socket").option("host", "127.0.0.1")
        writer = lines.option("port", sender).load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(tmp_path / "location")).start()

    query = start(sink := Sink())
    try:
        assert eventually(lambda: len(list(sink.rows().elements())) == 9)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sound(tmp_path / "location") == []
    query = start(Sink())
    try:
        with pytest.raises(StreamingQueryException, match="out of order"):
            query.processAllAvailable()
    finally:
        query.stop()


def run_stateful(
    session: SparkSession, inputs: Path, place: Path, sink: Sink, kind: str, mode: str
) -> None:
    """Run a query with state over files, one a batch, until it has read all that is there."""
    from pyspark.sql import functions

    rows = file_rows(session, inputs)
    if kind == "aggregation":
        grouped = rows.groupBy(functions.window("time", "2 minutes").alias("w")).count()
        rows = grouped.select(functions.concat_ws(" ", "w.start", "count"))
    elif kind == "deduplication":
        rows = rows.dropDuplicates(["key", "time"]).select("time")
    elif kind == "groups":
        state = {"outputStructType": "text string", "stateStructType": "count long"}
        rows = rows.groupBy("key").applyInPandasWithState(
            count_rows, **state, outputMode=mode, timeoutConf="NoTimeout"
        )
    else:
        other = file_rows(session, inputs)
        rows = rows.join(other, ["key", "time"]).select("time")
    writer = rows.writeStream.foreachBatch(sink).outputMode(mode)
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()


def count_rows(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count the rows of a key, over all batches."""
    import pandas

    count = (state.get[0] if state.exists else 0) + sum(map(len, frames))
    state.update((count,))
    yield pandas.DataFrame({"text": [f"{key[0]} {count}"]})


STATEFUL = {
    "aggregation": "update",
    "deduplication": "append",
    "join": "append",
    "groups": "update",
}


@pytest.fixture(scope="module", params=STATEFUL)
def stateful(
    request: pytest.FixtureRequest, sc: SparkContext, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Sink]:
    """A query with state that has read four files, with its output; tests copy it to change it."""
    from pyspark.sql import SparkSession

    folder, sink, kind = tmp_path_factory.mktemp("stateful"), Sink(), request.param
    write_inputs(folder / "in", count=4)
    run_stateful(SparkSession(sc), folder / "in", folder / "location", sink, kind, STATEFUL[kind])
    return kind, folder / "location", sink


def rewound(location: Path) -> Path:
    plan = plan_rewind(location, to_batch=2)  # in the middle of a window
    assert any("goes back to the end of batch 2" in each for each in plan.meaning)
    apply_plan(plan)
    return location


def rewound_again(location: Path) -> Path:
    """The first of the batches that a rewind appended is the same point."""
    last = inspect(location).batches[-1].batch_id
    apply_plan(plan_rewind(rewound(location), shift_by=1))
    apply_plan(plan_rewind(location, to_batch=last + 1))
    return location


def promoted(location: Path) -> Path:
    apply_plan(plan_promote(location, 2))
    return location


def forget_from(location: Path, batch_id: int) -> None:
    """Remove the entries of a batch and of later ones."""
    for log in ("offsets", "commits"):
        for path in (location / log).glob("[0-9]*"):
            if int(path.name) >= batch_id:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink()


def forked(location: Path) -> Path:
    """A fork that was made after batch 2."""
    forget_from(location, 3)
    target = location.with_name("fork")
    apply_fork(plan_fork(location, target))
    return target


CHANGES = [rewound, promoted, forked]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_state_goes_back_with_the_query(
    session: SparkSession,
    stateful: tuple[str, Path, Sink],
    tmp_path: Path,
    change: Callable[[Path], Path],
) -> None:
    """What comes out after the change is what the run that never stopped wrote."""
    kind, place, whole = stateful
    location, inputs = copy_of(place, tmp_path)
    if (kind, change) == ("aggregation", rewound):
        change = rewound_again
    location, again = change(location), Sink()
    assert {path for path in sound(location)} == set()
    new_id = inspect(location).next.first
    run_stateful(session, inputs, location, again, kind, STATEFUL[kind])

    assert min(again.batches) == new_id
    if kind == "aggregation":  # read in one batch, each window comes out once, with its last count
        last = {row.rpartition(" ")[0]: row for rows in whole.batches.values() for row in rows}
        first = [row for n in range(3) for row in whole.batches[n]]
        assert set(again.rows()) == set(last.values()) - set(first)
    else:
        assert whole.rows(range(3)) + again.rows() == whole.rows()
    assert sound(location) == []


def test_state_that_is_dropped_begins_anew(session: SparkSession, tmp_path: Path) -> None:
    """The query continues from where it stands; all records again, and it counts them again."""
    write_inputs(tmp_path / "in", count=3)
    location, whole, again = tmp_path / "location", Sink(), Sink()
    run_stateful(session, tmp_path / "in", location, whole, "aggregation", "update")

    offsets = {"0": {"logOffset": 0}}
    apply_plan(plan_rewind(location, to_offsets=offsets, drop_state=True))
    assert sound(location) == []
    run_stateful(session, tmp_path / "in", location, again, "aggregation", "update")

    assert sorted(row[-10:] for row in again.rows()) == ["00:00:00 1", "00:02:00 1"]
    assert sound(location) == []


def transform(session: SparkSession, inputs: Path, place: Path, sink: Sink) -> None:
    """Run a query with transformWithState over files, one a batch; Spark wants RocksDB for it."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class CountRows(StatefulProcessor):  # pickled by value, as it is not a module's
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            import pandas

            self._count.update(((self._count.get() or (0,))[0] + sum(map(len, rows)),))
            yield pandas.DataFrame({"text": [f"{key[0]} {self._count.get()[0]}"]})

    with settings(session, {"spark.sql.streaming.stateStore.providerClass": ROCKS_DB}):
        rows = file_rows(session, inputs).groupBy("key")
        counts = rows.transformWithStateInPandas(CountRows(), "text string", "update", "None")
        writer = counts.writeStream.foreachBatch(sink).outputMode("update")
        query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
        query.awaitTermination()


def test_what_transform_with_state_leaves_is_read_and_forked(
    session: SparkSession, tmp_path: Path
) -> None:
    """Its state is RocksDB's: it is copied as it is, and never taken back."""
    write_inputs(tmp_path / "in", count=3)
    location, fork, sink = tmp_path / "location", tmp_path / "fork", Sink()
    transform(session, tmp_path / "in", location, sink)
    assert sorted(sink.rows()) == ["a 1", "a 2", "a 3"]

    assert validate(location).findings == ()
    (operator,) = inspect(location).operators
    assert (operator.name, operator.format) == ("transformWithStateInPandasExec", "RocksDB")
    with pytest.raises(CheckpointError, match="is RocksDB, not HDFS-backed"):
        plan_rewind(location, to_batch=1)

    apply_fork(plan_fork(location, fork))
    shutil.copy(tmp_path / "in/0.json", tmp_path / "in/3.json")
    transform(session, tmp_path / "in", fork, again := Sink())
    assert list(again.rows()) == ["a 4"]
    assert sound(fork) == []

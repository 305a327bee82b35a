"""Graph checkpoints of two drivers in a location without locks."""

from __future__ import annotations

import uuid

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.errors import ConcurrentDriverError, StorageError
from penstock.storage import Storage
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.recovery import run
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import get_checkpoint_files
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.streaming.recovery.recreate import CheckpointReader
from penstock.streaming.recovery.run import (
    GraphCheckpoints,
    NoGraphCheckpoints,
    RunCheckpoints,
)


class Driver:
    """A driver as the engine runs it: what concerns its batches and its graph checkpoints."""

    def __init__(self, url: str, checkpoints: RunCheckpoints) -> None:
        self.location = CheckpointLocation(url)
        self.checkpoints = checkpoints
        self.next_id = self.location.acquire().next_batch_id
        checkpoints.start(self.location.storage)
        checkpoints.write(self.next_id * 1000, ())

    def batch(self, time_ms: int) -> None:
        entry = OffsetSeq(batch_timestamp_ms=time_ms, sources=('{"x":{}}',))
        self.location.plan(self.next_id, entry)
        self.checkpoints.supersede(time_ms, (time_ms,))
        self.checkpoints.write(time_ms, (time_ms,))
        self.location.commit(self.next_id)
        self.next_id += 1


def graph_of(name: str) -> GraphCheckpoints:
    graph = pickle_graph(DStreamGraph(1000))
    template = Checkpoint("local", name, (), graph, 0, "", 1000, (), ())
    return GraphCheckpoints(template, "lz4", interval_ms=60_000, is_read_back=False)


def read(driver: Driver) -> str | None:
    found = CheckpointReader(driver.location.storage).read()
    return None if found is None else found.framework


@pytest.fixture
def live() -> Driver:
    """A driver that lives, with its graph checkpoint written."""
    driver = Driver(f"memory://{uuid.uuid4()}/graph", graph_of("live"))
    driver.batch(1000)
    driver.checkpoints.stop()  # writes what was submitted
    return driver


@pytest.mark.parametrize("kept", [False, True])
def test_a_driver_that_starts_and_is_fenced_leaves_those_of_the_live_one(
    live: Driver, kept: bool
) -> None:
    before = get_checkpoint_files(live.location.storage)
    other = Driver(live.location.url, graph_of("new") if kept else NoGraphCheckpoints())
    assert read(live) == "live"
    live.batch(2000)
    with pytest.raises(ConcurrentDriverError):
        other.batch(2001)
    other.checkpoints.stop()
    assert get_checkpoint_files(live.location.storage) == before
    assert read(live) == "live"


@pytest.mark.parametrize(("kept", "found"), [(False, None), (True, "new")])
def test_a_driver_that_fenced_the_live_one_replaces_them(
    live: Driver, kept: bool, found: str | None
) -> None:
    other = Driver(live.location.url, graph_of("new") if kept else NoGraphCheckpoints())
    other.batch(2000)
    assert read(other) == found
    assert len(get_checkpoint_files(other.location.storage)) == kept
    with pytest.raises(ConcurrentDriverError):
        live.batch(2001)
    other.checkpoints.stop()
    assert read(other) == found


@pytest.mark.parametrize("kept", [False, True])
def test_a_failure_to_list_them_is_told_and_tried_again_with_the_next_batch(
    live: Driver, kept: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = Driver(live.location.url, graph_of("new") if kept else NoGraphCheckpoints())

    def fail(storage: Storage, *args: object, **kwargs: object) -> None:
        raise StorageError("the store is down", operation="list", path=storage.url, hint="wait")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.streaming.recovery.files.get_checkpoint_files", fail)
        patch.setattr("penstock.streaming.recovery.writer.get_checkpoint_files", fail)
        other.batch(2000)
    assert read(other) == "live"
    assert [each.levelname for each in caplog.records if each.name == run.__name__] == ["WARNING"]
    other.batch(3000)
    assert read(other) == ("new" if kept else None)
    other.checkpoints.stop()

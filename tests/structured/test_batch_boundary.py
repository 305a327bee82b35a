"""graceful_stop: a query ends between two batches, and its checkpoint says so."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from penstock.checkpoint.tools import inspect
from penstock.structured import graceful_stop
from tests.journal.helpers import write_blocks
from tests.seeds import storm_seed
from tests.structured.queries import Query
from tests.structured.sender import Sender
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def agree(query: Query) -> bool:
    """Whether the newest planned batch is committed, or there is none."""
    newest = [
        max((int(path.name) for path in (query.location / log).glob("[0-9]*")), default=-1)
        for log in ("offsets", "commits")
    ]
    return newest[0] == newest[1]


def test_each_of_many_stops_leaves_no_batch_to_run_again(query: Query) -> None:
    query.options["maxOffsetsPerTrigger"] = "20"
    sender = Sender(query.stream)
    sender.start()
    moments = random.Random(storm_seed())
    for interval in ("0 seconds", "10 milliseconds", "1 second"):
        started = query.start(interval)
        seen = len(query.seen)
        assert eventually(lambda seen=seen: len(query.seen) > seen)
        time.sleep(moments.random() / 10)
        assert graceful_stop(started)
        assert agree(query)
        assert inspect(query.location).next.rerun == ()
    sent = sender.end()
    query.options["maxOffsetsPerTrigger"] = str(sent)
    query.drain()
    assert query.ids == sorted(set(query.ids)), "a batch ran twice"
    assert sorted(int(line) for batch in query.seen for line in batch) == list(range(sent))


class Held:
    """Holds a batch until it is let go."""

    def __init__(self, query: Query) -> None:
        self.runs = threading.Event()
        self.go = threading.Event()
        query.on_batch = self._on_batch

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        self.runs.set()
        assert self.go.wait(WAIT_S)


@contextmanager
def stopping(query: StreamingQuery, ended: list[bool]) -> Iterator[threading.Thread]:
    """Stop a query beside the block."""
    thread = threading.Thread(target=lambda: ended.append(graceful_stop(query)))
    thread.start()
    yield thread
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_the_batch_that_runs_is_committed_and_none_follows(query: Query) -> None:
    query.options["maxOffsetsPerTrigger"] = "1"
    write_blocks(query.stream, [["a"], ["b"]])
    held = Held(query)
    started = query.start("0 seconds")
    assert held.runs.wait(WAIT_S)
    ended: list[bool] = []
    with stopping(started, ended):
        # From here on it plans no other batch, however long this one takes.
        execution = started._jsq.streamingQuery()
        assert eventually(lambda: execution.uniqueSources().isEmpty())
        assert not ended
        held.go.set()
    assert ended == [True]
    assert agree(query)
    assert query.seen == [["a"]]
    assert query.drain() == [["b"]]
    assert query.ids == [0, 1]


def test_a_query_that_waits_for_its_next_trigger_ends_at_once(query: Query) -> None:
    write_blocks(query.stream, [["a"]])
    started = query.start("1 hour")
    assert eventually(lambda: "Waiting for next trigger" in started.status["message"])
    assert graceful_stop(started)
    assert not started.isActive
    assert agree(query)
    assert query.seen == [["a"]]


def test_one_that_has_just_been_started_ends_before_its_first_batch_or_after_it(
    query: Query,
) -> None:
    write_blocks(query.stream, [["a"]])
    assert graceful_stop(query.start("0 seconds"))
    assert agree(query)
    query.drain()
    assert query.seen == [["a"]]


def test_when_time_is_up_the_batch_is_interrupted_and_runs_again(query: Query) -> None:
    write_blocks(query.stream, [["a"]])
    runs = threading.Event()

    def sleep(frame: DataFrame, batch_id: int) -> None:
        task = frame.sparkSession.sparkContext.parallelize([WAIT_S], 1)
        runs.set()
        task.foreach(time.sleep)

    query.on_batch = sleep
    started = query.start("0 seconds")
    assert runs.wait(WAIT_S)
    assert not graceful_stop(started, 0.1)
    assert not started.isActive
    assert not agree(query)
    query.on_batch = lambda frame, batch_id: None
    query.drain()
    assert query.seen[-1] == ["a"]
    assert agree(query)


def test_a_batch_that_fails_meanwhile_is_told(query: Query) -> None:
    write_blocks(query.stream, [["a"]])
    held = Held(query)
    wait = query.on_batch

    def fail(frame: DataFrame, batch_id: int) -> None:
        wait(frame, batch_id)
        raise ValueError("no such place")

    query.on_batch = fail
    started = query.start("0 seconds")
    assert held.runs.wait(WAIT_S)
    held.go.set()
    with pytest.raises(StreamingQueryException, match="no such place"):
        graceful_stop(started)

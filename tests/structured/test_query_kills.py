"""Real kills of the process that plans for a query; test_query_storm kills all the others."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest
from pyspark.errors import StreamingQueryException

from penstock.journal.retention.consumer_files import read_consumer
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks
from tests.seeds import storm_seed
from tests.structured.queries import Query
from tests.structured.sender import Sender
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark

CHECKPOINT = Commands("checkpoint", columns=200)


def test_planners_that_are_killed_lose_and_double_nothing(query: Query) -> None:
    """The process beside the driver: Spark ends the query, and its next start goes on."""
    stream = query.stream
    sender = Sender(stream)
    sender.start()
    moments = random.Random(storm_seed())
    query.options["maxOffsetsPerTrigger"] = "40"
    by_id: dict[int, list[str]] = {}
    for _ in range(4):
        started = query.start("10 milliseconds")
        seen = len(query.seen)
        assert eventually(lambda seen=seen: len(query.seen) > seen + 1)
        time.sleep(moments.random() / 20)
        entry = read_consumer(stream, query.consumer)
        assert entry is not None
        assert entry.program is not None
        os.kill(entry.program.pid, signal.SIGKILL)
        with suppress(StreamingQueryException):
            started.awaitTermination(int(WAIT_S))
        started.stop()
    sent = sender.end()
    query.options["maxOffsetsPerTrigger"] = str(sent)
    query.drain()
    for batch_id, found in zip(query.ids, query.seen, strict=True):
        assert by_id.setdefault(batch_id, found) == found
    assert sorted(int(line) for found in by_id.values() for line in found) == list(range(sent))


def test_a_checkpoint_that_was_rewound_reads_the_same_records_again(query: Query) -> None:
    query.options["maxOffsetsPerTrigger"] = "1"
    write_blocks(query.stream, [["a"], ["b"], ["c"]])
    write_blocks(query.stream, [["d"]], receiver="r0")
    assert query.drain() == [["a"], ["b"], ["c"], ["d"]]
    rewind = ["rewind", str(query.location), "--to-batch", "1", "--apply"]
    CHECKPOINT.succeed(*rewind)
    assert sorted(query.drain()) == [["c"], ["d"]]
    assert "error" not in CHECKPOINT.run("validate", str(query.location)).output

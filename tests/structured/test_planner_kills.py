"""A query that is killed before each storage operation, and between any two of Spark's steps.

``Spark`` stands for Spark: its logs, its order of calls, and a sink that keeps each batch's records
by the batch's id. What survives a kill are the journal, the logs and the sink.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from penstock.journal import JournalStream
from penstock.journal.record_reader import slice_records
from penstock.model import Offsets
from penstock.structured.journal.options import JournalOptions
from penstock.structured.journal.planner import JournalPlanner
from penstock.structured.session import Session
from tests.journal.helpers import clear_memory, memory_stream, write_blocks
from tests.storage.faulty_storage import FaultyStorage, Operation

KEEP = 3
BATCHES = 6


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Spark:
    """A query's checkpoint and sink, and a run over them."""

    stream: JournalStream
    point: Callable[[], None]
    offsets: list[Offsets] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[str]] = field(default_factory=dict)

    def run(self, feed: Iterator[list[str]]) -> None:
        """Run batches until there is nothing to read and nothing more to come."""
        planner = self._planner()
        if len(self.offsets) > self.commits:
            self._process(planner)
        for records in itertools.chain(feed, [[]]):
            if records:
                write_blocks(self.plain, [records], receiver=f"r{len(records) % 2}")
            start = self.offsets[-1] if self.offsets else planner.begin()
            self.point()
            end = planner.latest(start)
            if end == start:
                continue
            self.point()
            self.offsets.append(end)
            self.point()
            if len(self.offsets) > 1:
                planner.commit(self.offsets[-2])
            self.point()
            self._process(planner)

    @property
    def plain(self) -> JournalStream:
        """The stream as receivers write it, in processes of their own."""
        storage = self.stream.storage
        assert isinstance(storage, FaultyStorage)
        return replace(self.stream, storage=storage._inner)

    def read(self, start: Offsets, end: Offsets, planner: JournalPlanner) -> list[str]:
        tasks = [task.slices for task in planner.partitions(start, end)]
        return [record for task in tasks for record in slice_records(self.plain, task)]

    def _process(self, planner: JournalPlanner) -> None:
        number = len(self.offsets) - 1
        start = self.offsets[number - 1] if number else planner.begin()
        found = self.read(start, self.offsets[number], planner)
        assert self.sink.setdefault(number, found) == found, "a batch read other records"
        self.point()
        self.commits = number + 1
        self.point()

    def _planner(self) -> JournalPlanner:
        given = {"journal": self.stream.storage.url, "stream": "s", "consumer": "q"}
        return JournalPlanner(self.stream, "q", JournalOptions.parse(given), Session("", 2, KEEP))


def run_with_kills(*moments: int) -> tuple[Spark, bool]:
    """Run to the end, killed at these moments of a count over all runs; whether all came."""
    count = itertools.count()
    left = set(moments)

    def point(operation: Operation | None = None) -> None:
        moment = next(count)
        if moment in left:
            left.remove(moment)
            raise KilledError

    clear_memory()
    plain = memory_stream()
    stream = replace(plain, storage=FaultyStorage(plain.storage, before=point))
    spark = Spark(stream, point)
    feed = iter(
        [[f"{number}-{each}" for each in range(number % 3 + 1)] for number in range(BATCHES)]
    )
    while True:
        try:
            spark.run(feed)
        except KilledError:
            continue
        was_killed = not left
        left.clear()
        return spark, was_killed


def check(spark: Spark) -> None:
    expected = Counter(f"{n}-{each}" for n in range(BATCHES) for each in range(n % 3 + 1))
    found = Counter(record for records in spark.sink.values() for record in records)
    assert found == expected


@pytest.mark.storm
def test_a_kill_at_any_moment_loses_and_doubles_nothing() -> None:
    for moment in itertools.count():
        spark, was_killed = run_with_kills(moment)
        check(spark)
        if not was_killed:
            break
    assert moment > 100


@pytest.mark.parametrize("apart", [1, 8])
def test_kills_that_follow_one_another_do_no_harm(apart: int) -> None:
    for moment in range(0, 120, 5):
        spark, _ = run_with_kills(*range(moment, moment + 4 * apart, apart))
        check(spark)


def test_the_last_batches_can_be_read_again_after_any_kill() -> None:
    for moment in range(0, 150, 15):
        spark, _ = run_with_kills(moment)
        for number in range(max(1, len(spark.offsets) - KEEP), len(spark.offsets)):
            planner = spark._planner()
            start, end = spark.offsets[number - 1], spark.offsets[number]
            planner.latest(start)
            assert spark.read(start, end, planner) == spark.sink[number]

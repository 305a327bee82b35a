"""``parse``: a stream of the values that a parser makes of a journal's records.

What a parser refuses can fail the batch, be dropped, or become dead letters; docs/bad-records.md is
for users, penstock.journal.bad_records.parsing does it in the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from pyspark import RDD, Accumulator

from penstock.clock import iso_time
from penstock.errors import ConfigError, PenstockError
from penstock.journal import JournalStream
from penstock.journal.bad_records.dead_letters import (
    collect,
    create_dead_letters,
    dead_letter_stream,
)
from penstock.journal.bad_records.parsing import (
    AddRefusals,
    DeadLetters,
    Drop,
    Fail,
    OnRefused,
    ParseRecords,
    Refusals,
    parse_tasks,
)
from penstock.model import OffsetRange
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.streaming.inputs.journal_input import JournalInputDStream

__all__ = ["BadRecords", "ParsedDStream"]

_log = logging.getLogger(__name__)

BadRecords = Literal["fail", "drop", "dead_letter"]
"""The handling of a record that a parser refuses."""


class ParsedDStream(DStream):
    """The values that a parser makes of the records of a journal's stream, batch by batch.

    Records go from the journal to the parser without passing the JVM, and their offsets are known.

    Raises:
        ConfigError: the parser is not a function, ``bad_records`` is none of its values, or the
            stream's name leaves no room for that of its dead letters.
    """

    operation = "parse"

    def __init__(
        self,
        source: JournalInputDStream,
        parser: Callable[[Any], Any],
        bad_records: BadRecords,
    ) -> None:
        _check(source.name, parser, bad_records)
        super().__init__(source.ssc)
        self._source = source
        self._parser = parser
        self._bad_records = bad_records
        self._dead: JournalStream | None = None
        self._tally: Accumulator[dict[OffsetRange, Refusals]] | None = None

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream whose records are parsed."""
        return (self._source,)

    def initialize(self, zero_ms: int) -> None:
        """Begin; see BaseDStream. Also makes the stream of dead letters, if there shall be any.

        Raises:
            ConfigError: a stream of other records has the name of the dead letters' one.
        """
        super().initialize(zero_ms)
        if self._bad_records == "dead_letter":
            self._dead = create_dead_letters(self._source.journal)
        self._tally = self.ssc.sparkContext.accumulator({}, cast("Any", AddRefusals()))

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the values of a batch's records, parsed when the tasks run."""
        ranges = self._source.ranges(self._source.range_of(time_ms))
        sc = self.ssc.sparkContext
        tasks = parse_tasks(self._source.journal, ranges, sc.defaultParallelism, self._source.scan)
        if not tasks:
            return sc.emptyRDD()
        run = ParseRecords(self._source.journal, self._parser, self._on_refused())
        return sc.parallelize(tasks, len(tasks)).mapPartitions(run)

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """See BaseDStream. Also moves dead letters into their stream and logs refused records."""
        super().clear_metadata(ended_ms, needed_after_ms)
        self._collect()
        self._say_refused(ended_ms)

    def _on_refused(self) -> OnRefused:
        assert self._tally is not None
        if self._bad_records == "drop":
            return Drop(self._tally)
        if self._dead is None:
            return Fail()
        return DeadLetters(self._dead, self._tally, self._source.consumer_name)

    def _collect(self) -> None:
        if self._dead is None:
            return
        try:
            collect(self._source.journal, self._dead)
        except PenstockError:
            # They are durable in staged files already: the next batch retries.
            _log.warning("Dead letters of stream %s wait", self._source.name, exc_info=True)

    def _say_refused(self, committed_ms: int) -> None:
        """Log the records refused since the last call, and reset the counters."""
        if self._tally is None or not (found := self._tally.value):
            return
        # Tasks of later batches may add to it meanwhile.
        refusals = [found.pop(cell) for cell in list(found)]
        _log.warning(
            "Until the batch of %s the parser refused %d records of stream %s, which were %s; "
            "the first is %s",
            iso_time(committed_ms),
            sum(refusal.count for refusal in refusals),
            self._source.name,
            "dropped" if self._dead is None else f"kept in stream {self._dead.name}",
            refusals[0].first,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_dead": None, "_tally": None}


def _check(stream: str, parser: object, bad_records: object) -> None:
    if not callable(parser):
        raise ConfigError(
            f"{parser!r} is not a function",
            operation="parse",
            ids={"stream": stream},
            hint="give a function of one record that returns a value, or raises",
        )
    choices = get_args(BadRecords)
    if bad_records not in choices:
        raise ConfigError(
            f"bad_records is {bad_records!r}",
            operation="parse",
            ids={"stream": stream},
            hint=f"use one of {', '.join(choices)}",
        )
    if bad_records == "dead_letter":
        dead_letter_stream(stream)

"""``parse``: a stream of the values that a parser makes of a journal's records.

What a parser refuses can fail the batch, be dropped, or become dead letters; docs/bad-records.md is
for users, penstock.journal.bad_records.parsing does it in the tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.errors import ConfigError
from penstock.journal.bad_records.parsing import Fail, ParseRecords, parse_tasks
from penstock.streaming.inputs.refused import BadRecords, RefusedRecords
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.streaming.inputs.journal_input import JournalInputDStream


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
        if not callable(parser):
            raise ConfigError(
                f"{parser!r} is not a function",
                operation="parse",
                ids={"stream": source.name},
                hint="give a function of one record that returns a value, or raises",
            )
        self._refused = RefusedRecords("parse", source.name, bad_records)
        super().__init__(source.ssc)
        self._source = source
        self._parser = parser

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream whose records are parsed."""
        return (self._source,)

    def initialize(self, zero_ms: int) -> None:
        """Begin; see BaseDStream.

        Raises:
            ConfigError: a stream has the name of the folder of dead letters.
        """
        super().initialize(zero_ms)
        self._refused.begin(self.ssc.sparkContext, self._source.journal.storage)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the values of a batch's records, parsed when the tasks run."""
        ranges = self._source.ranges(self._source.range_of(time_ms))
        sc = self.ssc.sparkContext
        tasks = parse_tasks(self._source.journal, ranges, sc.defaultParallelism, self._source.scan)
        if not tasks:
            return sc.emptyRDD()
        on_refused = self._refused.on_refused(self._source.consumer_name) or Fail()
        run = ParseRecords(self._source.journal, self._parser, on_refused)
        return sc.parallelize(tasks, len(tasks)).mapPartitions(run)

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """See BaseDStream. Also logs refused records."""
        super().clear_metadata(ended_ms, needed_after_ms)
        self._refused.end_batch(ended_ms)

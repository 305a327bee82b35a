"""Plans the batches of a query over a stream of a journal, as one of its consumers.

Invariants:

1. Where the query begins is durable in the consumer's file before Spark records its first batch
   (``registration``, invariants 1 and 2). So the first batch is the same after any kill.
2. The consumer's committed offsets never pass what the query has committed: they are the ``end``
   of a ``commit``, which Spark sends when a later batch is in the query's log, or the ``start`` of
   a batch that is to be planned. So a query that has nothing to read is behind by nothing.
3. What the query's last ``minBatchesToRetain`` batches read is kept (``recent_ends``). A query
   whose checkpoint was taken back holds back the records from there on before it reads them.
4. A consumer with a committed batch belongs to one query, by the id of its checkpoint location:
   what another one commits would release records that the first has not read. A copy of a
   checkpoint has an id of its own, so it is refused like any other query.
5. Of a query's readers it belongs to the one that claimed it last: with its first call that plans,
   so a query that is refused claims nothing. An earlier reader, of a run that was left behind,
   finds that out before its next batch and its next commit, and ends: its checkpoint stays as it
   is, and all blocks from there on are kept for as long as ``retained`` covers them. One that slept
   in its commit may replace the consumer's file once more, which the last reader takes back, and
   deletes no block: the claims are files of their own (``claims``).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from penstock.errors import ConfigError
from penstock.journal.layout import consumer_path
from penstock.journal.offsets import precedes, ranges_between
from penstock.journal.reader import slice_ranges
from penstock.journal.retention.claims import claim, claim_order, superseded
from penstock.journal.retention.consumer_files import (
    ConsumerEntry,
    Program,
    read_consumer,
    write_consumer,
)
from penstock.journal.retention.recent_ends import RecentEnds
from penstock.journal.retention.registration import Consumer, register_consumer
from penstock.journal.source import JournalSource, lane_of
from penstock.journal.stream import JournalStream
from penstock.model import Offsets
from penstock.rate import Lane
from penstock.structured.journal.bounds import start_of
from penstock.structured.journal.options import JournalOptions
from penstock.structured.journal.ranges import RangePartition
from penstock.structured.journal.read import tasks_of
from penstock.structured.planner import StreamPlanner
from penstock.structured.session import Session

_log = logging.getLogger(__name__)
_ANY_QUERY = "structured-streaming"
"""The owner of a consumer whose query is not known; of others, this and the query's id."""


class JournalPlanner(StreamPlanner):
    """Plans for one consumer.

    Raises:
        ConfigError: the name belongs to a program of another kind, or the query has no checkpoint
            location that lasts.
        StorageError, LogFormatError: the journal or a consumer's file cannot be read.
    """

    def __init__(
        self, stream: JournalStream, consumer: str, options: JournalOptions, session: Session
    ) -> None:
        self._stream = stream
        self._name = consumer
        self._slots = session.slots
        query = session.query_of(options.journal, options.stream, consumer)
        if query is not None and query.is_temporary:
            raise _temporary(stream, consumer)
        self._keep = session.batches_to_retain if query is None else query.batches_to_retain
        self._owner = _ANY_QUERY if query is None else f"{_ANY_QUERY} {query.id}"
        self._location = "a Structured Streaming query" if query is None else query.location
        self._carries_ranges = options.ranges
        known = check_owner(stream, consumer)
        self._was_registered = known is not None
        begin = _register(stream, consumer, known, options, self._owner, self._location)
        self._consumer = Consumer(stream, consumer, self._owner, begin, self._location)
        self._source = JournalSource(self._consumer)
        self._committed: Offsets
        self._recent: RecentEnds
        self._adopt(self._entry())
        self._run: str | None = None
        """This reader's claim, once it has the consumer."""
        self._resumed = False

    def encode(self, offsets: Offsets) -> dict[str, Any]:
        """Return ``{"<stream>": {"<writer>": end}}``."""
        return {self._stream.name: dict(offsets)}

    def decode(self, offset: dict[str, Any]) -> Offsets:
        """Return the writers' ends."""
        return offsets_of(self._stream.name, offset)

    def begin(self) -> Offsets:
        """Return where the consumer began.

        Raises:
            ConfigError: the consumer has committed batches, and this query has none.
        """
        self._adopt(self._entry())  # another query may have begun since, and committed
        if self._recent.count:
            raise self._not_new()
        self._claim(is_new=True)
        begin = self._entry().begin  # of two queries that began at once, one has settled it
        return self._source.begin if begin is None else begin

    def latest(self, start: Offsets) -> Offsets:
        """Return the ends of all durable records."""
        self._check_current()
        self._resume(start)
        found = self._source.latest(start)
        self._advance(start)
        return found

    def snapshot(self) -> Offsets:
        """Return the ends of all durable records.

        Of every writer that a query may still read, also one whose checkpoint was taken back.
        """
        return self._source.latest(self._recent.oldest)

    def lane(self, partition: str) -> Lane:
        """Return the receiver of a writer: its epochs are read one after the other."""
        return lane_of(partition)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return tasks of about equal records."""
        self._claim()
        self._resume(start)
        ranges = ranges_between(start, end)
        if self._carries_ranges:
            return [RangePartition(ranges)] if ranges else []
        slices = slice_ranges(self._stream, ranges, self._source.scan)
        return tasks_of(self._stream, slices, self._slots)

    def commit(self, end: Offsets) -> None:
        """Commit in the journal, and retire the blocks that no consumer needs."""
        self._check_current()
        self._resume(end)
        self._advance(end)

    def _advance(self, end: Offsets) -> None:
        if end != self._committed:
            self._recent = self._recent.after(end, self._keep)
            self._write(end)

    def _write(self, end: Offsets) -> None:
        self._source.commit(self._committed, end, self._recent.oldest, self._recent)
        self._committed = end

    def _resume(self, start: Offsets) -> None:
        """Hold back the records from ``start`` on if the query was taken back to it."""
        if not self._resumed and precedes(start, self._committed):
            self._recent = self._recent.back_to(start)
            self._write(start)
        self._resumed = True

    def _claim(self, *, is_new: bool = False) -> None:
        """Take over the consumer from the reader before, once.

        Args:
            is_new: whether the query has no batch, nor has the consumer.
        """
        if self._run is not None:
            return
        entry = self._entry()
        if not is_new and _is_of_another(entry, self._owner):
            raise self._not_its_own(entry)
        if not is_new and not self._was_registered:  # nothing else tells of a new stream
            _log.warning(
                "The query has read stream %s before, and its consumer %r was not registered "
                "in %s: it continues at its offsets. If the stream was created anew, it passes "
                "over the records before them: begin with a new checkpoint location",
                self._stream.name,
                self._name,
                self._stream.storage.url,
            )
        # Not before now: a claim of before the consumer was removed is an earlier one.
        self._run = claim(self._stream, self._name, entry.run)
        entry = self._entry()  # an earlier reader that did not see the claim has written before
        self._source = JournalSource(replace(self._consumer, run=self._run))
        self._adopt(entry)
        self._take(entry)

    def _take(self, entry: ConsumerEntry) -> None:
        """Write an entry as this reader's."""
        program = Program.of_this_process(self._location)
        committed_ms = None if entry.program is None else entry.program.committed_ms
        mine = replace(
            entry,
            owner=self._owner,
            run=self._run,
            program=replace(program, committed_ms=committed_ms),
        )
        write_consumer(self._stream, self._name, mine)

    def _entry(self) -> ConsumerEntry:
        entry = read_consumer(self._stream, self._name)
        if entry is None:
            raise ConfigError(
                f"consumer {self._name!r} was removed while this query runs",
                operation="read consumer",
                path=self._path,
                ids={"stream": self._stream.name, "consumer": self._name},
                hint="start the query again, which registers it; if the stream was created anew, "
                "with a new checkpoint location",
            )
        return entry

    def _adopt(self, entry: ConsumerEntry) -> None:
        self._committed = entry.offsets
        self._recent = entry.recent or RecentEnds.begin_at(self._source.begin)

    def _check_current(self) -> None:
        self._claim()
        entry = self._entry()
        if claim_order(entry.run) > claim_order(self._run):
            raise superseded(self._stream, self._name)
        if entry.run != self._run:  # an earlier reader has slept, and written since
            own = replace(entry, offsets=self._committed, recent=self._recent)
            self._take(replace(own, retained=self._recent.oldest))

    def _not_new(self) -> ConfigError:
        return ConfigError(
            f"consumer {self._name!r} has committed batches, and this query begins anew: its "
            "checkpoint was removed, or another query has this consumer",
            operation="begin query",
            path=self._path,
            ids={"stream": self._stream.name, "consumer": self._name},
            hint="give each query a consumer of its own; to begin this one anew, remove it first: "
            + _removal(self._stream, self._name),
        )

    def _not_its_own(self, entry: ConsumerEntry) -> ConfigError:
        location = "" if entry.program is None else f", with checkpoint {entry.program.location}"
        return ConfigError(
            f"consumer {self._name!r} belongs to another query{location}: what this query commits "
            "would release records that the other one has not read",
            operation="begin query",
            path=self._path,
            ids={"stream": self._stream.name, "consumer": self._name},
            hint="give this query, or the copy of a checkpoint, a consumer of its own; if the "
            f"other one is gone for good, remove it: {_removal(self._stream, self._name)}",
        )

    @property
    def _path(self) -> str:
        return self._stream.storage.uri(consumer_path(self._stream.name, self._name))


def check_owner(stream: JournalStream, consumer: str) -> ConsumerEntry | None:
    """Return the consumer's entry, None if it is new.

    Raises:
        ConfigError: the name belongs to a program that is not a Structured Streaming query.
    """
    entry = read_consumer(stream, consumer)
    if entry is not None and (entry.owner or "").split(" ")[0] != _ANY_QUERY:
        raise ConfigError(
            f"consumer {consumer!r} of the stream belongs to another program",
            operation="register consumer",
            path=stream.storage.uri(consumer_path(stream.name, consumer)),
            ids={"stream": stream.name, "consumer": consumer},
            hint="choose another name; if that program is gone for good: "
            + _removal(stream, consumer),
        )
    return entry


def _is_of_another(entry: ConsumerEntry, owner: str) -> bool:
    """Whether both queries are known, and two."""
    return entry.owner != owner and _ANY_QUERY not in (entry.owner, owner)


def _register(
    stream: JournalStream,
    consumer: str,
    entry: ConsumerEntry | None,
    options: JournalOptions,
    owner: str,
    location: str,
) -> Offsets:
    """Register; return where the consumer begins: where the options say, if it is new."""

    def settle(resolve: Callable[[], Offsets]) -> Offsets:
        found = resolve()
        known = read_consumer(stream, consumer)
        if known is not None and known.begin is not None:
            return known.begin  # its own, or that of another query, which began meanwhile
        return start_of(stream, options.starting, found)

    owner = owner if entry is None else entry.owner or owner
    return register_consumer(stream, consumer, owner, location=location, settle=settle).begin


def _temporary(stream: JournalStream, consumer: str) -> ConfigError:
    return ConfigError(
        "the query has no checkpoint location, so it would begin anew with each start, and its "
        f"consumer {consumer!r} would hold records back for ever",
        operation="begin query",
        ids={"stream": stream.name, "consumer": consumer},
        hint='add .option("checkpointLocation", ...) to the writer; to read records once, use '
        "spark.read",
    )


def _removal(stream: JournalStream, consumer: str) -> str:
    where = f"{shlex.quote(stream.storage.url)} {stream.name} {consumer}"
    return f"`penstock journal consumers rm {where}`"


def offsets_of(stream: str, offset: dict[str, Any]) -> Offsets:
    """Return the offset map of an offset JSON.

    Raises:
        ConfigError: it belongs to another stream.
    """
    if list(offset) != [stream]:
        raise ConfigError(
            f"the query's checkpoint has offsets of {', '.join(map(repr, offset)) or 'nothing'}",
            operation="read offset",
            ids={"stream": stream},
            hint="start the query with the options that it had, or with a new checkpoint location",
        )
    offsets: Offsets = offset[stream]
    return offsets

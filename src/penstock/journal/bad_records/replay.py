"""Feeding dead letters back: each becomes a new record of the source stream, exactly once.

    collect -> append to the target, with the place reached as position -> commit -> seal -> retire

Invariants:

1. The records of some letters and the place after them become durable in one block of the target's
   receiver ``replay``, whose position lives through restarts. So a replay that was killed continues
   after the last letter that is in the target.
2. Letters are replayed in the order of the dead-letter stream, so one place says all: a writer of
   it, and an offset there.
3. A record is stored once, however many programs left a letter of it, and whenever they did
   (``replayed_records``): what was stored is in the same position.
4. Letters are freed only after the consumer ``replay`` committed the place behind them. When all
   are replayed their writer is sealed, so that its newest block can go, too.

A replay that is overtaken by another one is fenced by it, as any writer is.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa

from penstock.errors import AlreadyExistsError, ConfigError
from penstock.journal.bad_records.dead_letters import (
    collect,
    last_writer,
    source_stream,
    uncollected,
)
from penstock.journal.bad_records.raw_records import from_raw
from penstock.journal.bad_records.replayed_records import ReplayedRecords
from penstock.journal.epochs import publish_seal
from penstock.journal.layout import parse_writer
from penstock.journal.offsets import advance, ranges_between
from penstock.journal.progress import StreamProgress
from penstock.journal.reader import read_batches, readable_ranges
from penstock.journal.retention.consumer_files import commit_consumer, consumers
from penstock.journal.retention.retirement import retire
from penstock.journal.stream import JournalStream
from penstock.journal.writer import JournalWriter
from penstock.model import OffsetRange, Offsets

__all__ = ["EarlierAttempts", "letters_to_replay", "replay"]

_log = logging.getLogger(__name__)
_RECEIVER = "replay"
_CONSUMER = "replay"
_PLACES = "replayed"
_RECORDS = "records"
_ATTEMPTS = "attempts"


def replay(
    dead: JournalStream,
    target: JournalStream,
    limit: int | None = None,
    on_fed: Callable[[int], None] = lambda count: None,
) -> int:
    """Feed dead letters into a stream, at most ``limit``; return how many were fed now.

    Of several letters of one record, left by several programs, the first one is stored.

    Can be killed at any step and called again with the same target. ``on_fed`` is called with how
    many more were fed.

    Raises:
        ConfigError: the target holds other records than the stream that the letters came from.
        FencedError: another replay into the target was started meanwhile.
        DamagedBlockError, MissingBlockError: dead letters cannot be read.
        StorageError: a step failed; the call can be repeated.
    """
    source = _check_target(dead, target)
    if source.format.kind == "pickle":  # a letter holds the pickle, and readers will run it
        dead, target = dead.trusted(), target.trusted()
    oldest = _oldest_offsets(source)  # before the letters of what is deleted are collected
    collect(source, dead)
    replayed = 0
    if _ranges_after(dead, _committed(dead)):
        replayed = _feed(dead, target, limit, oldest, on_fed)
    _free(dead)
    return replayed


def letters_to_replay(dead: JournalStream) -> Iterator[pa.Table]:
    """Yield the dead letters that are not replayed; changes nothing."""
    staged, ranges = _snapshot(dead)
    for batch in read_batches(dead, ranges):
        yield pa.Table.from_batches([batch])
    yield from staged


def _snapshot(dead: JournalStream) -> tuple[list[pa.Table], list[OffsetRange]]:
    """Return the staged letters and the ranges of all others: none is missing, none in both.

    A program collects letters meanwhile: the stream's end must not have moved while they were read.
    """
    ranges = _ranges_after(dead, _committed(dead))
    while True:
        staged, before = list(uncollected(dead)), ranges
        ranges = _ranges_after(dead, _committed(dead))
        if ranges == before:
            return staged, ranges


class EarlierAttempts:
    """Tells how often records of one writer were refused before they were replayed."""

    def __init__(self, stream: JournalStream, writer: str) -> None:
        self._stream = stream
        self._writer = writer
        parsed = parse_writer(writer)
        is_replay = parsed is not None and parsed.receiver == _RECEIVER
        self._starts = [block.start_offset for block in stream.blocks(writer)] if is_replay else []
        self._known: dict[int, int] = {}

    def of(self, offset: int) -> int:
        """Return it for one record; 0 unless it is a replayed one."""
        if not self._starts:
            return 0
        start = self._starts[bisect_right(self._starts, offset) - 1]
        if start not in self._known:
            position = self._stream.footer(self._writer, start).position
            self._known[start] = position.get(_ATTEMPTS, 0) if isinstance(position, dict) else 0
        return self._known[start]


def _check_target(dead: JournalStream, target: JournalStream) -> JournalStream:
    source = JournalStream.open(dead.storage, source_stream(dead.name))
    if target.format != source.format:
        raise ConfigError(
            f"stream {target.name!r} holds records of {target.format!r}, and the dead letters are "
            f"of {source.format!r}",
            operation="replay dead letters",
            ids={"stream": dead.name, "to": target.name},
            hint=f"replay them into {source.name!r}, or into a stream with its schema",
        )
    return source


def _feed(
    dead: JournalStream,
    target: JournalStream,
    limit: int | None,
    oldest: Offsets,
    on_fed: Callable[[int], None],
) -> int:
    writer = JournalWriter(target, _RECEIVER)
    try:
        position = {_PLACES: {}, _RECORDS: {}, **(writer.position or {})}
        places = position[_PLACES]
        stored = ReplayedRecords(position[_RECORDS].get(dead.name, {}))
        place = max(_committed(dead), places.get(dead.name, {}), key=_order)
        commit_consumer(dead, _CONSUMER, place)
        ranges = _ranges_after(dead, place)
        fed = 0
        for letters, reached in _read(dead, ranges, limit):
            new = stored.take_new(letters)
            places[dead.name] = reached
            position[_RECORDS][dead.name] = stored.to_json()
            position[_ATTEMPTS] = letters.column("attempts")[0].as_py()
            records = from_raw(target.format, new.column("raw").to_pylist())
            writer.append_all(records, position=position)
            writer.flush()
            commit_consumer(dead, _CONSUMER, reached)
            fed += letters.num_rows
            on_fed(letters.num_rows)
        is_all = limit is None or fed < limit
        if is_all:
            stored.forget_before(oldest)
            position[_RECORDS][dead.name] = stored.to_json()
            writer.append_all([], position=position)  # becomes durable with the seal
        writer.close()
        if ranges and is_all:  # past letters that were given up, too
            commit_consumer(dead, _CONSUMER, {ranges[-1].partition: ranges[-1].end_offset})
        return fed
    finally:
        writer.abandon()


def _read(
    dead: JournalStream, ranges: list[OffsetRange], limit: int | None
) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
    """Yield letters in batches of equal attempts, at most ``limit``, and the place after each."""
    left = limit
    for wanted in readable_ranges(dead, ranges):
        offset = wanted.start_offset
        for batch in read_batches(dead, [wanted]):
            for part in _equal_attempts(batch if left is None else batch.slice(0, left)):
                offset += part.num_rows
                left = None if left is None else left - part.num_rows
                yield part, {wanted.partition: offset}
            if left == 0:
                return


def _equal_attempts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    attempts = batch.column("attempts").to_pylist()
    start = 0
    for at in range(1, len(attempts) + 1):
        if at == len(attempts) or attempts[at] != attempts[start]:
            yield batch.slice(start, at - start)
            start = at


def _ranges_after(dead: JournalStream, place: Offsets) -> list[OffsetRange]:
    return ranges_between(place, advance(place, StreamProgress(dead).ends(place)))


def _free(dead: JournalStream) -> None:
    """Retire what is replayed, of the newest writer too when that is all of it."""
    writer, newest = last_writer(dead)
    if newest.end_offset and _committed(dead) == {str(writer): newest.end_offset}:
        with suppress(AlreadyExistsError):  # there are new letters
            publish_seal(dead, writer, newest)
    retire(dead)


def _oldest_offsets(stream: JournalStream) -> dict[str, int]:
    """Return the first offset of each writer that the journal still holds."""
    listed = ((str(writer), stream.blocks(writer)) for writer in stream.writers())
    return {writer: blocks[0].start_offset for writer, blocks in listed if blocks}


def _committed(dead: JournalStream) -> dict[str, int]:
    return dict(consumers(dead).get(_CONSUMER, {}))


def _order(place: Offsets) -> tuple[str, int]:
    """Sort places by their one writer, whose epochs are padded with zeros, and its offset."""
    return max(place.items(), default=("", 0))

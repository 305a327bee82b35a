"""The streams of a journal: what they hold, who writes, who reads, and what was lost."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import pyarrow as pa

from penstock.errors import DamagedBlockError, LogFormatError, PenstockError
from penstock.journal import JournalStream, stream_names
from penstock.journal.bad_records.dead_letters import (
    DeadLetterFile,
    DeadLetterFolder,
    dead_letter_folders,
)
from penstock.journal.bounds.quota import uncommitted
from penstock.journal.lag import records_behind
from penstock.journal.layout import WriterId, parse_block_start, parse_writer
from penstock.journal.losses.loss_log import Loss, Lost, lost_ranges, read_losses, without_lost
from penstock.journal.offsets import is_finished
from penstock.journal.retention.consumer_files import ConsumerEntry, read_consumers
from penstock.model import OffsetRange, Offsets
from penstock.receivers import Status, read_status
from penstock.receivers.control import is_silent, receivers_with_status
from penstock.status.model import (
    MOST_LETTERS,
    MOST_LOSSES,
    ConsumerStatus,
    DeadLetterStatus,
    Process,
    ReceiverStatus,
    StreamStatus,
    WriterStatus,
)
from penstock.storage import FileInfo, Storage

_WINDOW_S = 60
_MOST_TEXT = 400


@dataclass(frozen=True, slots=True)
class ReadStreams:
    """The streams of a journal, and what could not be read of it."""

    streams: tuple[StreamStatus, ...] = ()
    blocks: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)
    """Stream -> writer -> when its blocks were published."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Stream or Kafka input -> refused records that wait for a replay."""
    letters: Mapping[str, tuple[DeadLetterStatus, ...]] = field(default_factory=dict)
    """The newest of them."""
    problems: tuple[str, ...] = ()

    def lag(self, taken: Mapping[str, Offsets], now_ms: int) -> tuple[int, int | None] | None:
        """Return how many records come after the offsets, by stream, and the age of the oldest.

        None where this journal is not the one of the offsets.
        """
        ends = {each.name: _ends(each.writers) for each in self.streams}
        if not taken or not taken.keys() <= ends.keys():
            return None
        records = sum(records_behind(ends[name], offsets) for name, offsets in taken.items())
        times = [oldest_untaken(self.blocks[name], offsets) for name, offsets in taken.items()]
        oldest_ms = min((each for each in times if each is not None), default=None)
        return records, None if oldest_ms is None else max(now_ms - oldest_ms, 0)


def read_streams(journal: Storage, letters: LetterReader, now_ms: int) -> ReadStreams:
    """Return the streams of a journal; what cannot be read is named, and hides nothing else."""
    streams: list[StreamStatus] = []
    blocks: dict[str, Mapping[str, Published]] = {}
    problems: list[str] = []
    try:
        names = stream_names(journal)
        waiting = {each.source: each.waiting() for each in dead_letter_folders(journal)}
    except PenstockError as error:
        return ReadStreams(problems=(str(error),))
    for name in names:
        try:
            found, blocks[name] = _read(JournalStream.open(journal, name), now_ms)
            streams.append(found)
        except PenstockError as error:
            problems.append(str(error))
    counts = {name: sum(file.count for file in files) for name, files in waiting.items()}
    return ReadStreams(
        tuple(streams), blocks, counts, letters.read(journal, waiting), tuple(problems)
    )


def read_stream(stream: JournalStream) -> StreamStatus:
    """Return the status of a stream; reads one footer for each writer, and no records.

    Raises:
        StorageError: its files cannot be listed or read.
    """
    return _read(stream, time.time_ns() // 1_000_000)[0]


def read_writers(stream: JournalStream) -> tuple[WriterStatus, ...]:
    """Return all writers of a stream; reads one footer for each."""
    return _writers(stream, lost_ranges(stream.storage, stream.name), ())


def newest_losses(losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """Return the newest entries of a loss log, newest first."""
    return tuple(sorted(losses, key=lambda loss: loss.when, reverse=True)[:MOST_LOSSES])


def _read(stream: JournalStream, now_ms: int) -> tuple[StreamStatus, Mapping[str, Published]]:
    problems: list[str] = []
    entries = _consumers(stream, problems)
    skipped = lost_ranges(stream.storage, stream.name)
    writers = _writers(stream, skipped, [entry.offsets for entry in entries.values()])
    ends = _ends(writers)
    blocks = published_blocks(
        stream.storage.walk(stream.name), {each.writer: each.end_offset for each in writers}
    )
    said = _statuses(stream, problems)
    bounded = [each for each in said.values() if each.state != "stopped"]
    lost = [each for ranges in skipped.values() for each in ranges]
    times = [time_ms for each in blocks.values() for time_ms in each.times_ms]
    status = StreamStatus(
        name=stream.name,
        schema=repr(stream.format),
        writers=writers,
        receivers=tuple(_receiver(stream.name, *each, blocks, now_ms) for each in said.items()),
        consumers=tuple(_consumer(*each, ends, blocks, now_ms) for each in entries.items()),
        records=sum(each.records for each in writers),
        blocks=sum(each.blocks for each in writers),
        size_bytes=sum(each.size_bytes for each in writers),
        rate=_rate(blocks.values(), now_ms),
        oldest_ms=min(times, default=None),
        uncommitted_bytes=sum(each.uncommitted_bytes for each in writers),
        max_bytes=_sum([each.max_bytes for each in bounded]),
        max_lag_records=_sum([each.max_lag_records for each in bounded]),
        losses=newest_losses(_losses(stream, problems)) if lost else (),
        lost_records=sum(each.count for each in lost),
        problems=tuple(problems),
    )
    return status, blocks


def _writers(
    stream: JournalStream, lost: Lost, committed: Collection[Offsets]
) -> tuple[WriterStatus, ...]:
    """Return all writers; ``committed`` has the committed offsets of each consumer."""
    return tuple(_writer(stream, writer, lost, committed) for writer in stream.writers())


def _ends(writers: Iterable[WriterStatus]) -> dict[WriterId, int]:
    parsed = ((parse_writer(each.writer), each.end_offset) for each in writers)
    return {writer: end for writer, end in parsed if writer is not None}


def _rate(blocks: Iterable[Published], now_ms: int) -> float:
    return sum(each.records_since(now_ms - 1000 * _WINDOW_S) for each in blocks) / _WINDOW_S


def _sum(bounds: Sequence[int | None]) -> int | None:
    """Return the sum of the bounds, None when there are none, or one is unbounded."""
    known = [bound for bound in bounds if bound is not None]
    return sum(known) if known and len(known) == len(bounds) else None


def _losses(stream: JournalStream, problems: list[str]) -> list[Loss]:
    try:
        return read_losses(stream.storage, stream.name)
    except PenstockError as error:
        problems.append(str(error))
        return []


def _writer(
    stream: JournalStream, writer: WriterId, lost: Lost, committed: Collection[Offsets]
) -> WriterStatus:
    blocks = stream.blocks(writer)
    start = blocks[0].start_offset if blocks else 0
    state: Literal["open", "sealed", "damaged"]
    try:
        newest = stream.newest(writer)
        end = newest.end_offset if newest else 0
        sealed = newest is not None and newest.sealed
        state = "sealed" if sealed else "open"
    except DamagedBlockError:
        end, sealed, state = blocks[-1].start_offset, False, "damaged"
    held = OffsetRange(str(writer), start, end)
    records = sum(part.count for part in without_lost([held], lost))
    data = blocks[: len(blocks) - sealed]
    return WriterStatus(
        writer=str(writer),
        state=state,
        blocks=len(data),
        size_bytes=sum(block.size for block in blocks),
        start_offset=start,
        end_offset=end,
        records=records,
        lost=held.count - records,
        uncommitted_bytes=uncommitted(writer, data, end, committed).size_bytes,
    )


def _statuses(stream: JournalStream, problems: list[str]) -> dict[str, Status]:
    found: dict[str, Status] = {}
    for receiver in receivers_with_status(stream):
        try:
            if (status := read_status(stream, receiver)) is not None:
                found[receiver] = status
        except LogFormatError as error:
            problems.append(str(error))
    return found


def _receiver(
    stream: str, name: str, said: Status, blocks: Mapping[str, Published], now_ms: int
) -> ReceiverStatus:
    own = [
        published
        for writer, published in blocks.items()
        if (parsed := parse_writer(writer)) is not None and parsed.receiver == name
    ]
    return ReceiverStatus(
        name=name,
        stream=stream,
        state="dead" if is_silent(said, now_ms) else said.state,
        writer=said.writer,
        process=Process(said.host, said.pid),
        changed_ms=said.changed_ms,
        errors=said.errors,
        last_error=said.last_error,
        listening_at=said.listening_at,
        rate=_rate(own, now_ms),
        newest_ms=max((each.times_ms[-1] for each in own if each.times_ms), default=None),
        refused=said.refused,
        publish_ms=said.publish_ms,
    )


def _consumers(stream: JournalStream, problems: list[str]) -> Mapping[str, ConsumerEntry]:
    try:
        return read_consumers(stream)
    except LogFormatError as error:
        problems.append(str(error))
        return {}


def _consumer(
    name: str,
    entry: ConsumerEntry,
    ends: Mapping[WriterId, int],
    blocks: Mapping[str, Published],
    now_ms: int,
) -> ConsumerStatus:
    program = entry.program
    oldest_ms = oldest_untaken(blocks, entry.offsets)
    return ConsumerStatus(
        name=name,
        offsets=entry.offsets,
        lag_records=records_behind(ends, entry.offsets),
        lag_ms=None if oldest_ms is None else max(now_ms - oldest_ms, 0),
        committed_ms=None if program is None else program.committed_ms,
        location=None if program is None else _url(program.location),
        process=None if program is None else Process(program.host, program.pid),
    )


def _url(location: str) -> str:
    """Return a location as locations are named here; Spark's queries say ``file:/path``."""
    return re.sub("^file:/(?!/)", "file:///", location)


# -- blocks --
#
# When they were published is told by their files' times: one listing, and no block is read. So
# rates and ages are known of what live and dead processes wrote alike. Where a store tells no times
# there are none.


@dataclass(frozen=True, slots=True)
class Published:
    """The blocks of one writer, ascending, and where it ends."""

    starts: tuple[int, ...]
    """Empty, as the times, where the store does not tell when blocks were published."""
    times_ms: tuple[int, ...]
    end: int

    def records_since(self, since_ms: int) -> int:
        """Return how many records were published after a time."""
        blocks = zip(pairwise((*self.starts, self.end)), self.times_ms, strict=True)
        return sum(max(end - start, 0) for (start, end), time_ms in blocks if time_ms > since_ms)

    def oldest_after(self, offset: int) -> int | None:
        """Return when the block was published that holds the first record from an offset on."""
        if offset >= self.end or not self.times_ms:
            return None
        return self.times_ms[max(bisect_right(self.starts, offset) - 1, 0)]


def published_blocks(files: Iterable[FileInfo], ends: Mapping[str, int]) -> dict[str, Published]:
    """Return the blocks of each writer.

    Args:
        files: the files of a stream, as ``Storage.walk`` lists them.
        ends: where each writer ends; one that is not named is left out.
    """
    found: dict[str, list[tuple[int, int | None]]] = {}
    for file in files:
        parts = file.path.split("/")
        start = parse_block_start(parts[-1])
        if start is not None and len(parts) > 1 and parts[-2] in ends:
            found.setdefault(parts[-2], []).append((start, file.modified_ms))
    return {writer: _published(blocks, ends[writer]) for writer, blocks in found.items()}


def _published(blocks: list[tuple[int, int | None]], end: int) -> Published:
    blocks.sort()
    times = tuple(time_ms for _, time_ms in blocks if time_ms is not None)
    if len(times) < len(blocks):  # a store that does not tell
        return Published((), (), end)
    return Published(tuple(start for start, _ in blocks), times, end)


def oldest_untaken(blocks: Mapping[str, Published], taken: Offsets) -> int | None:
    """Return when the oldest block was published of which ``taken`` has not all; None without."""
    times = []
    for name, published in blocks.items():
        writer = parse_writer(name)
        if writer is not None and not is_finished(writer, taken):
            times.append(published.oldest_after(taken.get(name, 0)))
    return min((each for each in times if each is not None), default=None)


# -- dead letters: records that parsers refused, as text --


class LetterReader:
    """Reads the dead letters of one journal, again when files of them came or went."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[DeadLetterFile], tuple[DeadLetterStatus, ...]]] = {}

    def read(
        self, journal: Storage, waiting: Mapping[str, list[DeadLetterFile]]
    ) -> dict[str, tuple[DeadLetterStatus, ...]]:
        """Return the newest dead letters of each stream or Kafka input, newest first.

        Those that cannot be read are left out: `penstock journal verify` says why.

        Args:
            journal: their journal.
            waiting: their files, as they were just listed.
        """
        for name, files in waiting.items():
            if name not in self._known or self._known[name][0] != files:
                self._known[name] = files, _read_letters(DeadLetterFolder(journal, name), files)
        return {name: self._known[name][1] for name, files in waiting.items() if files}


def _read_letters(
    dead: DeadLetterFolder, files: list[DeadLetterFile]
) -> tuple[DeadLetterStatus, ...]:
    found: list[DeadLetterStatus] = []
    with suppress(PenstockError):
        for table in _newest_tables(dead, files):
            found += map(_letter, table.to_pylist())
    found.sort(key=lambda letter: letter.time_ms, reverse=True)
    return tuple(found[:MOST_LETTERS])


def _newest_tables(dead: DeadLetterFolder, files: list[DeadLetterFile]) -> Iterator[pa.Table]:
    """Yield the letters of the last files, which have those of the last records of a writer."""
    count = 0
    for file in reversed(files):
        if count >= MOST_LETTERS:
            return
        yield dead.read(file)
        count += file.count


def _letter(row: dict[str, object]) -> DeadLetterStatus:
    raw, time = row["raw"], row["time"]
    text = raw.decode("utf-8", errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
    return DeadLetterStatus(
        writer=str(row["writer"]),
        offset=int(str(row["offset"])),
        error_type=str(row["error_type"]),
        error=str(row["error"])[:_MOST_TEXT],
        text=text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…",
        time_ms=round(time.timestamp() * 1000),  # type: ignore[attr-defined]
    )

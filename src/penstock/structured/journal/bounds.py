"""Where a read of a stream begins and ends, by the options' words, offsets or times."""

from __future__ import annotations

import json

from penstock.errors import ConfigError, MissingBlockError
from penstock.journal.layout import parse_block_start, parse_writer, writer_folder
from penstock.journal.offsets import is_finished, precedes, ranges_between
from penstock.journal.progress import StreamProgress
from penstock.journal.reader import slice_ranges
from penstock.journal.retention.registration import earliest_offsets
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice
from penstock.journal.stream import JournalStream
from penstock.model import Offsets
from penstock.storage import FileInfo
from penstock.structured.journal.options import JournalOptions, StreamOffsets

# -- offsets by time: which blocks were published when --
#
# Neither blocks nor their names hold a time, so it is the file's: when it was written. The unit is
# a block. A journal that was copied has the times of the copy, unless the copy kept them.


def offsets_at(stream: JournalStream, time_ms: int, ends: Offsets) -> dict[str, int]:
    """Return the start of each writer's first block that was published at ``time_ms`` or later.

    Args:
        stream: the stream.
        time_ms: milliseconds since the epoch.
        ends: the writers' ends, which are taken where all blocks are older.

    Raises:
        ConfigError: the storage does not tell when files were written.
    """
    return {writer: min(_first(stream, writer, time_ms, end), end) for writer, end in ends.items()}


def _first(stream: JournalStream, writer: str, time_ms: int, end: int) -> int:
    for file in stream.storage.walk(writer_folder(stream.name, writer)):
        start = parse_block_start(file.path.rpartition("/")[2])
        if start is None:
            continue
        if _written_ms(stream, file) >= time_ms:
            return start
    return end


def _written_ms(stream: JournalStream, file: FileInfo) -> int:
    if file.modified_ms is None:
        raise ConfigError(
            "the storage does not tell when files were written",
            operation="find blocks by time",
            path=stream.storage.url,
            ids={"stream": stream.name},
            hint="name offsets, or a consumer, instead of a time",
        )
    return file.modified_ms


def start_of(stream: JournalStream, starting: StreamOffsets, earliest: Offsets) -> Offsets:
    """Return where a read begins.

    Args:
        stream: the stream.
        starting: the option.
        earliest: the offsets of the oldest blocks.

    Raises:
        ConfigError: records from there on are gone, or not in the stream yet.
    """
    progress = StreamProgress(stream)
    offsets = _resolve(stream, starting, earliest, progress)
    if starting != "earliest":
        ends = _ends(progress, earliest)
        _check_not_after(stream, "startingOffsets", offsets, earliest, ends)
        _slices(stream, "startingOffsets", offsets, ends, progress.scan)
    return offsets


def batch_slices(stream: JournalStream, options: JournalOptions) -> list[BlockSlice]:
    """Return the slices between the bounds of ``spark.read``.

    Raises:
        ConfigError: records between them are gone, or not in the stream yet.
    """
    progress = StreamProgress(stream)
    earliest = earliest_offsets(stream)
    latest = _ends(progress, earliest)
    start = _resolve(stream, options.starting, earliest, progress)
    end = _resolve(stream, options.ending, earliest, progress)
    _check_not_after(stream, "endingOffsets", end, earliest, latest)
    if precedes(end, start):
        raise _refused(stream, "endingOffsets", end, f"the read begins at {json.dumps(start)}")
    return _slices(stream, "startingOffsets", start, end, progress.scan)


def _resolve(
    stream: JournalStream, bound: StreamOffsets, earliest: Offsets, progress: StreamProgress
) -> Offsets:
    if bound == "earliest":
        return earliest
    if isinstance(bound, (str, int)):
        ends = _ends(progress, earliest)
        return ends if isinstance(bound, str) else offsets_at(stream, bound, ends)
    return bound


def _ends(progress: StreamProgress, earliest: Offsets) -> Offsets:
    return {str(writer): end.end_offset for writer, end in progress.ends(earliest).items()}


def _slices(
    stream: JournalStream, option: str, start: Offsets, end: Offsets, scan: StreamScan | None
) -> list[BlockSlice]:
    try:
        return slice_ranges(stream, ranges_between(start, end), scan)
    except MissingBlockError as e:
        raise _refused(stream, option, start, "records from there on are gone") from e


def _check_not_after(
    stream: JournalStream, option: str, offsets: Offsets, earliest: Offsets, ends: Offsets
) -> None:
    # Of a writer whose blocks are all retired, nothing tells the end.
    gone = {w for w in offsets if (writer := parse_writer(w)) and is_finished(writer, earliest)}
    if beyond := [w for w, at in offsets.items() if w not in gone and at > ends.get(w, -1)]:
        raise _refused(stream, option, offsets, f"the stream ends before, in {', '.join(beyond)}")


def _refused(stream: JournalStream, option: str, offsets: Offsets, why: str) -> ConfigError:
    return ConfigError(
        f"option {option} is {json.dumps({stream.name: dict(offsets)})}: {why}",
        operation="begin query",
        path=stream.storage.uri(stream.name),
        ids={"stream": stream.name, "option": option},
        hint="give earliest or latest, or offsets that the journal holds: `penstock journal ls "
        f"{stream.storage.url}` shows them",
    )

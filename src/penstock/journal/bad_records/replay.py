"""Feeding dead letters back: each becomes a new record of the source stream, exactly once.

    files that wait -> append to the target, with their names as position -> marks -> delete them

Invariants:

1. The records of some files and the names of these files become durable in one block of the
   target's receiver ``replay``, whose position lives through restarts. So a replay that was killed
   between the block and the marks makes up for the marks, and stores nothing again.
2. A record is stored once, however many programs left a letter of it, and whenever they did: the
   marks have the offsets that are stored. A mark lives for as long as the journal holds the
   record's block, since a program that starts later with "earliest" parses that block, too.

A replay that is overtaken by another one into the same target is fenced by it, as any writer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.journal.bad_records.dead_letters import DeadLetterFile, DeadLetterFolder
from penstock.journal.bad_records.raw_records import from_raw
from penstock.journal.stream import JournalStream
from penstock.journal.writer import JournalWriter

_RECEIVER = "replay"
_MOST_FILES = 256
_BLOCK_BYTES = 32 << 20


def replay(
    dead: DeadLetterFolder,
    target: JournalStream,
    most_files: int | None = None,
    on_fed: Callable[[int], None] = lambda count: None,
) -> int:
    """Store dead letters in a stream again; return how many were fed now.

    Of several letters of one record, left by several programs, the first one is stored.

    Can be killed at any step and called again with the same target.

    Args:
        dead: the dead letters.
        target: a stream with the schema of the one that the letters came from.
        most_files: how many files to feed, each as a whole; None for all.
        on_fed: called with how many more letters were fed.

    Raises:
        ConfigError: the target holds other records than the stream that the letters came from, or
            it refuses one of the records.
        NotFoundError: the letters did not come from a stream of this journal.
        FencedError: another replay into the target was started meanwhile.
        DamagedBlockError: a file is damaged.
        StorageError: a step failed; the call can be repeated.
    """
    source = _check_target(dead, target)
    # Before the letters are listed: those of blocks that are deleted meanwhile are among them.
    oldest = _oldest_offsets(source)
    fed = 0
    if dead.waiting():
        if source.format.kind == "pickle":  # a letter holds the pickle, and readers will run it
            dead, target = dead.trusted(), target.trusted()
        fed = _feed(dead, target, most_files, on_fed)
    dead.tidy(oldest)
    return fed


def _check_target(dead: DeadLetterFolder, target: JournalStream) -> JournalStream:
    source = JournalStream.open(dead.storage, dead.source)
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
    dead: DeadLetterFolder,
    target: JournalStream,
    most_files: int | None,
    on_fed: Callable[[int], None],
) -> int:
    writer = JournalWriter(target, _RECEIVER)
    try:
        position = dict(writer.position or {})
        stored_files = position.get(dead.name, ())
        for file in dead.waiting():
            if file.name in stored_files:
                dead.mark_replayed(file, _offsets(dead.read(file)))
        fed = 0
        stored = _StoredRecords(dead)
        for group in _groups(dead, dead.waiting()[:most_files]):
            new = [stored.take_new(file, letters) for file, letters in group]
            position[dead.name] = [file.name for file, _ in group]
            raws = [raw for letters in new for raw in letters.column("raw").to_pylist()]
            _append(dead, target, writer, raws, position)
            for file, letters in group:
                dead.mark_replayed(file, _offsets(letters))
                fed += letters.num_rows
                on_fed(letters.num_rows)
        writer.close()
        return fed
    finally:
        writer.abandon()


def _append(
    dead: DeadLetterFolder,
    target: JournalStream,
    writer: JournalWriter,
    raws: list[bytes],
    position: dict[str, list[str]],
) -> None:
    try:
        writer.append_all(from_raw(target.format, raws), position=dict(position))
    except ConfigError as error:
        error.ids |= {"stream": dead.name, "files": ",".join(position[dead.name])}
        error.hint = f"{error.hint}; deleting the file with that letter discards its dead letters"
        raise
    writer.flush()


def _groups(
    dead: DeadLetterFolder, files: list[DeadLetterFile]
) -> Iterator[list[tuple[DeadLetterFile, pa.Table]]]:
    """Yield files with their letters, in groups of which each becomes one block."""
    group: list[tuple[DeadLetterFile, pa.Table]] = []
    size = 0
    for file in files:
        letters = dead.read(file)
        if group and (len(group) == _MOST_FILES or size + letters.nbytes > _BLOCK_BYTES):
            yield group
            group, size = [], 0
        group.append((file, letters))
        size += letters.nbytes
    if group:
        yield group


class _StoredRecords:
    """The records of which a letter is stored again already, by this replay or an earlier one."""

    def __init__(self, dead: DeadLetterFolder) -> None:
        self._dead = dead
        self._marks = dead.replayed()
        self._seen: dict[str, set[int]] = {}

    def take_new(self, file: DeadLetterFile, letters: pa.Table) -> pa.Table:
        """Return the letters of records that are not stored, and note them as stored."""
        seen = self._seen.setdefault(file.records.partition, set())
        for mark in self._marks:
            if _overlap(mark, file):
                seen |= self._dead.replayed_offsets(mark)
        offsets = letters.column("offset")
        new = letters.filter(pc.invert(pc.is_in(offsets, pa.array(sorted(seen), pa.int64()))))
        seen.update(_offsets(new))
        return new


def _overlap(one: DeadLetterFile, other: DeadLetterFile) -> bool:
    left, right = one.records, other.records
    return (
        left.partition == right.partition
        and left.start_offset < right.end_offset
        and right.start_offset < left.end_offset
    )


def _offsets(letters: pa.Table) -> list[int]:
    offsets: list[int] = letters.column("offset").to_pylist()
    return offsets


def _oldest_offsets(stream: JournalStream) -> dict[str, int]:
    """Return the first offset of each writer that the journal still holds."""
    listed = ((str(writer), stream.blocks(writer)) for writer in stream.writers())
    return {writer: blocks[0].start_offset for writer, blocks in listed if blocks}

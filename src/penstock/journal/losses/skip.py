"""Skips unreadable records: the checks before the loss log gets an entry.

Records that can be read, now or later, must not be skipped:

- a block that is sound, or of a newer format, or that cannot be read for another reason than damage
  (its disk is away, say);
- what an open writer has not written yet: what lies behind its newest block and beyond all that
  consumers were told of. A writer is over when it is sealed, or when a later epoch of its receiver
  has blocks. Where the newest block of one that is not over is damaged, its end is unknown. Then no
  process may be writing any more: the end that is chosen here is where the next epoch seals it, and
  a writer that lived on would publish elsewhere.

Whatever else cannot be read is damaged or missing.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    DamagedBlockError,
    NewerBlockError,
    NotFoundError,
)
from penstock.journal.layout import WriterId, claim_path, parse_writer
from penstock.journal.losses.loss_log import (
    Loss,
    create_loss,
    loss_now,
    lost_ranges,
    skip_commands,
    without_lost,
)
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.journal.verify import check_block, known_end, reached_end
from penstock.model import OffsetRange

__all__ = ["check_skip", "skip"]

_REASON_CHARS = 1000


def check_skip(stream: JournalStream, wanted: OffsetRange) -> bool:
    """Check that none of the records can be read; return False if they are skipped already.

    Raises:
        ConfigError: they can be read, or may still be written, or the writer does not exist.
        NewerBlockError: they can be read by a newer version.
        StorageError: a block cannot be read for another reason than damage.
    """
    writer = _writer(stream, wanted)
    left = without_lost([wanted], lost_ranges(stream.storage, stream.name))
    if not left:
        return False
    if left != [wanted]:
        raise _refusal(
            stream, wanted, "some of these records are skipped already", _commands(stream, left)
        )
    blocks = stream.blocks(writer)
    _check_unreadable(stream, writer, blocks, wanted)
    if not any(block.start_offset >= wanted.end_offset for block in blocks):
        _check_end(stream, writer, blocks, wanted)
    return True


def skip(stream: JournalStream, wanted: OffsetRange, reason: str) -> Loss | None:
    """Skip unreadable records; return the entry in the loss log, None if it existed.

    Raises what ``check_skip`` raises, and:
        ConfigError: the reason is empty or too long.
    """
    if not 0 < len(reason.strip()) <= _REASON_CHARS:
        raise _refusal(
            stream, wanted, "no reason is given", f"say why, in 1 to {_REASON_CHARS} characters"
        )
    if not check_skip(stream, wanted):
        return None
    loss = loss_now(wanted, reason.strip())
    try:
        create_loss(stream.storage, stream.name, loss)
    except AlreadyExistsError:  # another process skipped the same records meanwhile
        return None
    return loss


def _writer(stream: JournalStream, wanted: OffsetRange) -> WriterId:
    writer = parse_writer(wanted.partition)
    if writer is None or writer not in stream.writers():
        raise _refusal(stream, wanted, "the stream has no such writer", "see `penstock journal ls`")
    if not wanted.count:
        raise _refusal(stream, wanted, "the range is empty", "its end is exclusive")
    return writer


def _check_unreadable(
    stream: JournalStream, writer: WriterId, blocks: Sequence[BlockEntry], wanted: OffsetRange
) -> None:
    """Check that all records within the range are unreadable, and that it ends before a seal."""
    sound: list[OffsetRange] = []
    end = wanted.end_offset
    for block, next_start in _blocks_of(blocks, wanted):
        try:
            footer = check_block(stream, writer, block, next_start)
        except NewerBlockError:
            raise
        except DamagedBlockError:
            continue
        if footer.sealed:
            if wanted.start_offset < footer.start_offset:
                end = footer.start_offset
            continue
        start = max(wanted.start_offset, footer.start_offset)
        held = OffsetRange(wanted.partition, start, min(end, max(start, footer.end_offset)))
        sound += [held] if held.count else []
    if end < wanted.end_offset:
        why = f"the writer ended at {end}"
    elif sound:
        why = f"records {_listed(sound)} of them are sound"
    else:
        return
    unread = without_lost([replace(wanted, end_offset=end)], {wanted.partition: sound})
    hint = _commands(stream, unread) or "all of it can be read"
    raise _refusal(stream, wanted, why, f"nothing was skipped; {hint}")


def _blocks_of(
    blocks: Sequence[BlockEntry], wanted: OffsetRange
) -> Iterator[tuple[BlockEntry, int | None]]:
    """Yield the blocks that may have records of the range, and the start of each next one."""
    starts = [block.start_offset for block in blocks]
    for block, next_start in itertools.zip_longest(blocks, starts[1:]):
        ends_before = next_start is not None and next_start <= wanted.start_offset
        if block.start_offset < wanted.end_offset and not ends_before:
            yield block, next_start


def _listed(ranges: Iterable[OffsetRange]) -> str:
    """Return ascending ranges as text, with adjacent ones as one."""
    joined: list[tuple[int, int]] = []
    for each in ranges:
        start = each.start_offset
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, each.end_offset))
    return ", ".join(f"[{start}, {end})" for start, end in joined)


def _check_end(
    stream: JournalStream, writer: WriterId, blocks: Sequence[BlockEntry], wanted: OffsetRange
) -> None:
    """Check a range that includes the end of a writer's newest block."""
    if _is_over(stream, writer):
        return
    end = 0
    if blocks:
        try:
            end = stream.footer(writer, blocks[-1].start_offset).end_offset
        except DamagedBlockError:
            _check_unknown_end(stream, writer, blocks[-1], wanted)
            return
    # Records that consumers have seen were durable once: they are lost, not unwritten.
    end = max(end, reached_end(stream, writer))
    if wanted.end_offset > end:
        raise _unwritten(stream, wanted, end)


def _check_unknown_end(
    stream: JournalStream, writer: WriterId, newest: BlockEntry, wanted: OffsetRange
) -> None:
    if (pid := _living_owner(stream, writer)) is not None:
        raise _refusal(
            stream,
            wanted,
            f"the newest block is damaged, and process {pid} may still write behind it",
            "stop that process; or wait for its next block, which determines the end of this one",
        )
    end = known_end(stream, writer, newest.start_offset)
    if wanted.end_offset < end:
        raise _refusal(
            stream,
            wanted,
            f"a consumer has already seen records up to {end}",
            _commands(stream, [OffsetRange(wanted.partition, wanted.start_offset, end)]),
        )


def _is_over(stream: JournalStream, writer: WriterId) -> bool:
    """Whether this writer cannot publish any more."""
    with suppress(DamagedBlockError):
        if (newest := stream.newest(writer)) is not None and newest.sealed:
            return True
    later = (w for w in stream.writers() if w.receiver == writer.receiver and w > writer)
    return any(stream.blocks(each) for each in later)


def _living_owner(stream: JournalStream, writer: WriterId) -> int | None:
    """Return the process that claimed a writer, if it is on this host and alive."""
    try:
        claim = json.loads(stream.storage.read(claim_path(stream.name, writer)))
        host, pid = str(claim["host"]), int(claim["pid"])
    except (NotFoundError, ValueError, KeyError, TypeError):
        return None
    if host != socket.gethostname():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # alive, and owned by another user
    return pid


def _unwritten(stream: JournalStream, wanted: OffsetRange, end: int) -> ConfigError:
    return _refusal(
        stream,
        wanted,
        f"the writer is open and ends at {end}: what follows is still to be written",
        "choose a range up to that end, or have the writer sealed, as its receiver does when it "
        "stops, and when it starts again",
    )


def _commands(stream: JournalStream, ranges: list[OffsetRange]) -> str:
    return skip_commands(stream.storage, stream.name, ranges)


def _refusal(stream: JournalStream, wanted: OffsetRange, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"{wanted.partition}:{wanted.start_offset}-{wanted.end_offset} cannot be skipped: {why}",
        operation="skip records",
        path=stream.storage.uri(stream.name),
        ids={"stream": stream.name, "writer": wanted.partition},
        hint=hint,
    )

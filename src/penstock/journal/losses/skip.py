"""Skips unreadable records: the checks before the loss log gets an entry.

`penstock journal verify` finds what cannot be read and prints the commands that skip it. Whatever
the command says, records that can be read, now or later, are refused:

- records of a sound block, of a block of a newer format, and of one that cannot be read for another
  reason than damage (its disk is away, say);
- records that an open writer has not written yet: those behind its newest block and behind all that
  consumers were told of. A writer is over when it is sealed, or when a later epoch of its receiver
  has blocks.

Where the newest block of an open writer is damaged, its end is unknown, and any end is accepted:
that is where the next epoch seals the writer. A process that still wrote behind that block would
publish after its own seal. Nothing here can tell whether it runs, on whatever host: stopping it
first is the operator's part (docs/bad-records.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress

from penstock.errors import AlreadyExistsError, ConfigError, DamagedBlockError, NewerBlockError
from penstock.journal.layout import WriterId, parse_writer
from penstock.journal.losses.loss_log import (
    Loss,
    create_loss,
    loss_now,
    lost_ranges,
    without_lost,
)
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.journal.verify import check_block, reached_end
from penstock.model import OffsetRange

_REASON_CHARS = 1000
_VERIFY = (
    "nothing was skipped; `penstock journal verify` prints the commands for what cannot be read"
)


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
        raise _refusal(stream, wanted, "some of these records are skipped already", _VERIFY)
    blocks = stream.blocks(writer)
    _check_unreadable(stream, writer, blocks, wanted)
    if not any(block.start_offset >= wanted.end_offset for block in blocks):
        _check_written(stream, writer, blocks, wanted)
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
    """Check that no sound block holds any of the records, and that they end before a seal."""
    for block, next_start in _blocks_of(blocks, wanted):
        try:
            footer = check_block(stream, writer, block, next_start)
        except NewerBlockError:
            raise
        except DamagedBlockError:
            continue
        start = max(wanted.start_offset, footer.start_offset)
        end = min(wanted.end_offset, footer.end_offset)
        if footer.sealed and wanted.start_offset < footer.start_offset < wanted.end_offset:
            raise _refusal(stream, wanted, f"the writer ended at {footer.start_offset}", _VERIFY)
        if start < end:
            why = f"records [{start}, {end}) of them can be read"
            raise _refusal(stream, wanted, why, _VERIFY)


def _blocks_of(
    blocks: Sequence[BlockEntry], wanted: OffsetRange
) -> Iterator[tuple[BlockEntry, int | None]]:
    """Yield the blocks that may have records of the range, and the start of each next one."""
    starts = [block.start_offset for block in blocks]
    for block, next_start in itertools.zip_longest(blocks, starts[1:]):
        ends_before = next_start is not None and next_start <= wanted.start_offset
        if block.start_offset < wanted.end_offset and not ends_before:
            yield block, next_start


def _check_written(
    stream: JournalStream, writer: WriterId, blocks: Sequence[BlockEntry], wanted: OffsetRange
) -> None:
    """Check that an open writer has written the records of a range that no later block follows."""
    if _is_over(stream, writer):
        return
    try:
        end = stream.footer(writer, blocks[-1].start_offset).end_offset if blocks else 0
    except DamagedBlockError:
        return
    # Records that consumers have seen were durable once: they are lost, not unwritten.
    end = max(end, reached_end(stream, writer))
    if wanted.end_offset > end:
        raise _refusal(
            stream,
            wanted,
            f"the writer is open and ends at {end}: what follows is still to be written",
            "choose a range up to that end, or have the writer sealed, as its receiver does when "
            "it stops, and when it starts again",
        )


def _is_over(stream: JournalStream, writer: WriterId) -> bool:
    """Whether this writer cannot publish any more."""
    with suppress(DamagedBlockError):
        if (newest := stream.newest(writer)) is not None and newest.sealed:
            return True
    later = (w for w in stream.writers() if w.receiver == writer.receiver and w > writer)
    return any(stream.blocks(each) for each in later)


def _refusal(stream: JournalStream, wanted: OffsetRange, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"{wanted.partition}:{wanted.start_offset}-{wanted.end_offset} cannot be skipped: {why}",
        operation="skip records",
        path=stream.storage.uri(stream.name),
        ids={"stream": stream.name, "writer": wanted.partition},
        hint=hint,
    )

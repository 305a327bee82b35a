"""Errors of reading: the records that are missing, and the commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import (
    DamagedBlockError,
    MissingBlockError,
    NewerBlockError,
    NotFoundError,
    PenstockError,
)
from penstock.journal.block import read_footer
from penstock.journal.losses.loss_log import lost_ranges, skip_commands, without_lost
from penstock.journal.slices import BlockSlice
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

_RESTORE = "restore the blocks from a copy (`penstock journal verify` finds all that is damaged)"


@contextmanager
def explained(stream: JournalStream, part: BlockSlice) -> Iterator[None]:
    """Add the records of an unreadable block and the hint to its error."""
    try:
        yield
    except NewerBlockError:
        raise
    except NotFoundError as e:
        raise _gone(stream, part) from e
    except DamagedBlockError as e:
        _, writer, _ = part.path.split("/")
        end = part.block_end or _end_of_damaged(stream, part)
        e.ids |= {"stream": stream.name, "writer": writer, "start": part.block_start, "end": end}
        raise with_command(stream, e) from e.__cause__
    except MissingBlockError as e:
        raise with_command(stream, e) from None


def _gone(stream: JournalStream, part: BlockSlice) -> PenstockError:
    _, writer, _ = part.path.split("/")
    end = part.block_end or part.end_offset
    error = MissingBlockError(
        f"records [{part.start_offset}, {part.end_offset}) are not in the journal: "
        "their block is missing",
        operation="read range",
        path=stream.storage.uri(part.path),
        ids={"stream": stream.name, "writer": writer, "start": part.block_start, "end": end},
    )
    return with_command(stream, error)


def _end_of_damaged(stream: JournalStream, part: BlockSlice) -> int:
    """Return the end of a writer's newest block: from its footer, otherwise the known minimum."""
    try:
        return read_footer(stream.read_tail(part.path), part.path).end_offset
    except PenstockError:
        return part.end_offset


def with_command(
    stream: JournalStream, error: PenstockError, restore: str = _RESTORE
) -> PenstockError:
    """Add the hint with the fix to an error with the ids of the records."""
    records = OffsetRange(error.ids["writer"], error.ids["start"], error.ids["end"])
    left = without_lost([records], lost_ranges(stream.storage, stream.name))
    commands = skip_commands(stream.storage, stream.name, left)
    error.hint = f"nothing was skipped; {restore}, or skip the records: {commands}"
    return error

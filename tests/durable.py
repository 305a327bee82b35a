"""What of a stream's records is durable, as another process sees it in the journal."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal import JournalStream
from penstock.storage import open_storage
from tests.waiting import eventually


def durable(checkpoint: Path, stream: str) -> int:
    """Return how many records are in blocks; none while there is no such stream."""
    try:
        journal = JournalStream.open(open_storage(checkpoint / "journal"), stream)
        newest = [journal.newest(writer) for writer in journal.writers()]
    except PenstockError:
        return 0
    return sum(footer.end_offset for footer in newest if footer is not None)


def wait_durable(checkpoint: Path, stream: str, count: int) -> None:
    """Wait until at least so many records are in blocks."""
    arrived = eventually(lambda: durable(checkpoint, stream) >= count)
    assert arrived, f"{durable(checkpoint, stream)} of {count} arrived"

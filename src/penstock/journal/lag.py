"""How many records a reader has not taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.journal.layout import WriterId
from penstock.journal.offsets import is_finished
from penstock.model import Offsets


def records_behind(ends: Mapping[WriterId, int], taken: Offsets) -> int:
    """Return the records of all writers, with their end offsets, after an offset map."""
    return sum(
        max(0, end - taken.get(str(writer), 0))
        for writer, end in ends.items()
        if not is_finished(writer, taken)
    )

"""Examines the blocks that the error of a failed job names.

Bounded: only blocks that the error names are read, and only a few of them. A job fails for many
reasons, and its batch may be as large as a backlog.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from penstock.errors import PenstockError
from penstock.journal.reader import read_slices, slice_ranges
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

_MOST_BLOCKS = 4


def find_named_damage(
    stream: JournalStream, ranges: Iterable[OffsetRange], text: str
) -> PenstockError | None:
    """Return the damage of blocks of the ranges that ``text`` names, if any.

    A block is named by its path, or by the ids in errors of the journal.
    """
    name = re.escape(stream.name)
    named = re.compile(
        rf"/{name}/(?P<writer>[^/\s]+)/(?P<start>[0-9]{{20}})\.parquet"
        rf"|stream={name} writer=(?P<writer_id>\S+) start=(?P<start_id>[0-9]+)"
    )
    blocks = dict.fromkeys(
        (found["writer"] or found["writer_id"], int(found["start"] or found["start_id"]))
        for found in named.finditer(text)
    )
    starts: dict[str, list[int]] = {}
    for writer, start in itertools.islice(blocks, _MOST_BLOCKS):
        starts.setdefault(writer, []).append(start)
    if not starts:
        return None
    try:
        # A missing block shows in the previous one, which extends further according to the listing.
        slices = slice_ranges(stream, (part for part in ranges if part.partition in starts))
        for part in slices:
            end = part.end_offset if part.block_end is None else part.block_end
            writer = part.path.split("/")[1]
            if any(part.block_start <= start < end for start in starts[writer]):
                for _ in read_slices(stream, [part]):
                    pass
    except PenstockError as damage:
        return damage
    return None

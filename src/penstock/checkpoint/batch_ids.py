"""Batch ids as file names, and the gaps between them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

MAX_BATCH_ID = 2**63 - 1
"""Spark keeps batch ids in a signed 64-bit integer."""

_FEW = 2
_BATCH_ID = re.compile(r"0|[1-9][0-9]{0,18}")


def parse_batch_id(name: str) -> int | None:
    """Return the batch id of a file name, or None for any other file.

    Only the canonical form counts: ``5``, but not ``05``, ``+5``, ``-1``, ``5.tmp`` or ``.5.crc``.
    (Spark's HDFSMetadataLog accepts everything that Java parses as a long, and then opens the id
    under its canonical name.)
    """
    if _BATCH_ID.fullmatch(name) is None:
        return None
    batch_id = int(name)
    return batch_id if batch_id <= MAX_BATCH_ID else None


def find_gaps(batch_ids: Iterable[int]) -> tuple[range, ...]:
    """Return the ranges of ids that are missing between the smallest and the largest."""
    return tuple(
        range(left + 1, right) for left, right in pairwise(sorted(batch_ids)) if right > left + 1
    )


def describe_files(folder: str, ranges: Sequence[range]) -> str:
    """Name the files of ``ranges``, as in ``offsets/3, offsets/5 to offsets/9``."""
    return ", ".join(
        f"{folder}/{ids[0]}" if ids[0] == ids[-1] else f"{folder}/{ids[0]} to {folder}/{ids[-1]}"
        for ids in ranges
    )


def describe_ids(batch_ids: Sequence[int]) -> str:
    """Return ids in a few words: where they begin and end, and how many there are."""
    if len(batch_ids) <= _FEW:
        return ", ".join(map(str, batch_ids))
    return f"{batch_ids[0]} to {batch_ids[-1]} ({len(batch_ids)} batches)"

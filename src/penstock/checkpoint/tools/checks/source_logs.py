"""Whether a file source's own log holds what the query needs of it. Pure.

    sources/<i>/12              the files that entry 12 added
    sources/<i>/9.compact       those of all entries up to 9; before it nothing is needed

At its start the source reads from the newest compacted entry to its newest one, and a batch that
runs again names its files by the entry in its offset. Source: Spark's CompactibleFileStreamLog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from penstock.checkpoint.batch_ids import describe_files, find_gaps, parse_batch_id
from penstock.checkpoint.tools.findings import Finding

_COMPACT = ".compact"


def is_file_log(data: bytes) -> bool:
    """Whether an entry of a source's log is of a file source: a line of it names a file."""
    return b'"path":"' in data and b'"batchId":' in data


def batch_ids_of(path: str) -> range:
    """Return the batch ids that an entry of a file source's log may give its files."""
    name = path.rpartition("/")[2]
    entry = parse_batch_id(name.removesuffix(_COMPACT)) or 0
    return range(0 if name.endswith(_COMPACT) else entry, entry + 1)


def first_needed(names: Iterable[str]) -> int:
    """Return the newest compacted entry among the files of a source's log, else the first."""
    compacted = (name.removesuffix(_COMPACT) for name in names if name.endswith(_COMPACT))
    ids = map(parse_batch_id, compacted)
    return max((number for number in ids if number is not None), default=0)


def check_file_source(
    source: str, names: Collection[str], newest_planned: int
) -> Iterator[Finding]:
    """Yield what is missing of ``names``, the files of a source's log.

    ``newest_planned`` is the entry in the newest offset; -1 stands for none.
    """
    folder = f"sources/{source}"
    numbers = (parse_batch_id(name.removesuffix(_COMPACT)) for name in names)
    ids = {number for number in numbers if number is not None}
    first = first_needed(names)
    newest = max(newest_planned, *ids, -1)
    needed = {number for number in ids if number >= first}
    if gaps := find_gaps({first - 1, *needed, newest + 1}):
        yield Finding(
            "error",
            describe_files(folder, gaps),
            "entries of the file source's log are missing",
            "the query fails at its start, or reads files again that it has forgotten",
            "restore the files from a backup, or start with a new checkpoint location",
        )

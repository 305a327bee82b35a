"""Whether a source still has what is to be read again.

A file source's own log names its files, as the entries of a penstock program do, and those on this
machine can be tried. What topics keep their brokers tell, if the caller knows them (TopicCheck).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.log_format import MalformedLogError, parse_log
from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.checks.source_logs import is_file_log
from penstock.checkpoint.tools.named_files import local_path
from penstock.checkpoint.tools.offsets import (
    is_of_journal,
    is_of_topics,
    log_offset,
    moved,
)
from penstock.storage import local_root

TopicCheck = Callable[[object], None]
"""Raises KafkaDataLossError if topics are not those of an offset, or lack records from it on."""

_COMPACT = ".compact"


def describe_source(
    checkpoint: Checkpoint, source: str, start: object, end: object, are_held: TopicCheck | None
) -> str:
    """Return in words what a source reads again from ``start``, having come to ``end``.

    Raises:
        CheckpointError: it is known that some of it is gone.
        KafkaError: what ``are_held`` raises.
    """
    first, last = log_offset(start), log_offset(end)
    by = moved(start, end)
    if by is not None and by < 0:
        return f"ahead, to {json.dumps(start)}: what lies in between is not read"
    if last is not None:
        return _check_files(checkpoint, source, -1 if first is None else first, last)
    if start is None:
        return "from its beginning, as the query's options say (not checked)"
    distance = "" if by is None else f", {by:,} before where it stands"
    if is_of_topics(start):
        has = check_topics(start, are_held)
    elif is_of_journal(start):
        has = (
            "that the journal still has this is not checked (`penstock journal ls <journal>` shows"
            " where each writer's blocks begin)"
        )
    else:
        has = "that the source still has this is not checked"
    return f"from {json.dumps(start)}{distance}; {has}"


def check_topics(start: object, are_held: TopicCheck | None) -> str:
    """Return in words whether topics have what is read again from ``start``; raises as above."""
    if are_held is None:
        return "that the topics still have this is not checked (--brokers)"
    are_held(start)
    return "the topics have this"


def check_files(checkpoint: Checkpoint, source: str, files: Iterable[tuple[str, int, int]]) -> str:
    """Return in words whether the files of batches that run again are as they were planned.

    Each is a URL as Hadoop prints a path, its time of modification in ms and its length in bytes.

    Raises:
        CheckpointError: one on this machine is not.
    """
    found = {url: (time_ms, length) for url, time_ms, length in files}
    local = {url: path for url in found if (path := local_root(url)) is not None}
    changed = [url for url, path in local.items() if not _is_as_planned(path, *found[url])]
    if changed:
        raise refusal(
            checkpoint,
            f"{len(changed)} of {len(found)} files of source {source} that would be read again are "
            f"gone, or have changed: {', '.join(changed[:3])}",
            "restore them, with their times, or go back less far",
        )
    return f"{len(found)} files again{_unchecked(len(found) - len(local))}"


def _is_as_planned(path: str, time_ms: int, length: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    # Hadoop's own times may be cut to seconds.
    return status.st_size == length and abs(status.st_mtime_ns // 1_000_000 - time_ms) < 1_000


def _unchecked(far: int) -> str:
    return f", {far} of them not on this machine and not checked" if far else ""


def _check_files(checkpoint: Checkpoint, source: str, first: int, last: int) -> str:
    """Check the files that entries ``(first, last]`` of a file source's log name."""
    names = [path for path, entry in _file_entries(checkpoint, source) if first < entry <= last]
    local = {name: path for name in names if (path := local_path(name)) is not None}
    gone = [name for name, path in local.items() if not os.path.exists(path)]
    if gone:
        raise refusal(
            checkpoint,
            f"{len(gone)} of {len(names)} files of source {source} that would be read again are "
            f"gone: {', '.join(gone[:3])}",
            "restore them, or go back less far",
        )
    return (
        f"from entry {first + 1} of its log: {len(names)} files again"
        f"{_unchecked(len(names) - len(local))}, in one batch, whatever maxFilesPerTrigger says"
    )


def _file_entries(checkpoint: Checkpoint, source: str) -> Iterator[tuple[str, int]]:
    """Yield the files in a file source's log, each once, with its entry."""
    prefix = f"sources/{source}/"
    paths = [path for path in checkpoint.files if path.startswith(prefix) and _is_entry(path)]
    found: dict[tuple[str, int], None] = {}
    for data in checkpoint.read(paths).values():
        if isinstance(data, bytes) and is_file_log(data):
            found |= dict.fromkeys(_names_in(data))
    yield from found


def _names_in(data: bytes) -> Iterator[tuple[str, int]]:
    try:
        for line in parse_log(data).lines:
            entry = json.loads(line)
            yield str(entry["path"]), int(entry["batchId"])
    except (MalformedLogError, ValueError, KeyError, TypeError, RecursionError):
        return  # `validate` says so


def _is_entry(path: str) -> bool:
    return parse_batch_id(path.rpartition("/")[2].removesuffix(_COMPACT)) is not None

"""What ``penstock checkpoint`` shows of a checkpoint path of batches.

Reading changes nothing, and needs no permission to write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.batched.kept import kept_numbers, open_path, read_ids, sound_ends, topics_of
from penstock.batched.layout import (
    DIRTY_BIT,
    LOGS,
    PLANNED,
    REWIND,
    TOPICS,
    checkpoint_number,
    parse_log,
    parse_planned,
    parse_rewind,
)
from penstock.checkpoint.tools import Finding, Severity, worst
from penstock.errors import ConfigError, LogFormatError, NotFoundError
from penstock.storage import Storage

__all__ = [
    "PathInspection",
    "PathValidation",
    "TopicFacts",
    "inspect_path",
    "is_checkpoint_path",
    "validate_path",
]

_OF_QUERIES = "metadata"  # a file; a topic's name is a folder's
_BEGUN = "a rewind was begun and is not complete"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Where a topic stands."""

    topic: str
    newest: int | None
    """The number of the newest sound checkpoint; None without one."""
    kept: int
    """How many files there are."""
    done: Mapping[int, int]
    """The last offset that is done, by partition, as in the file."""
    read: Mapping[int, int]
    """The last offset that was read, where that is another one."""


@dataclass(frozen=True, slots=True)
class PathInspection:
    """Where a program stands."""

    location: str
    is_dirty: bool
    """Whether records were read that no checkpoint has."""
    topics: tuple[TopicFacts, ...]
    planned_batch: int | None
    """The batch that exactly-once sinks began last; None without such sinks."""
    is_rewinding: bool
    """Whether a rewind was begun that the next command or start completes: topics will move."""


@dataclass(frozen=True, slots=True)
class PathValidation:
    """What is damaged or out of place in a checkpoint path."""

    location: str
    files: int
    findings: tuple[Finding, ...]

    severity: Severity | None
    """The worst of the findings'; None when there are none."""


def is_checkpoint_path(place: str | os.PathLike[str]) -> bool:
    """Whether batches keep their checkpoints there; False for what queries and programs leave."""
    try:
        storage = open_path(place)
    except ConfigError:
        return False
    entries = {entry.name: entry for entry in storage.list()}
    if _OF_QUERIES in entries and not entries[_OF_QUERIES].is_folder:
        return False
    if entries.keys() & {DIRTY_BIT, LOGS, PLANNED, REWIND}:
        return True
    return any(kept_numbers(storage, name) for name, entry in entries.items() if entry.is_folder)


def inspect_path(place: str | os.PathLike[str]) -> PathInspection:
    """Return where the program of a checkpoint path stands.

    Raises:
        ConfigError: there is no such folder, or the URL is not understood.
        StorageError: it cannot be read.
    """
    storage = open_path(place)
    planned = _planned(storage)
    return PathInspection(
        storage.url,
        storage.exists(DIRTY_BIT),
        tuple(_facts(storage, topic) for topic in topics_of(storage)),
        None if isinstance(planned, str) else planned,
        storage.exists(REWIND),
    )


def validate_path(place: str | os.PathLike[str]) -> PathValidation:
    """Find what is damaged in a checkpoint path, or does not belong there.

    Raises: as ``inspect_path``.
    """
    storage = open_path(place)
    findings = []
    for topic in topics_of(storage):
        findings += _topic_findings(storage, topic)
    if isinstance(problem := _planned(storage), str):
        findings.append(
            Finding(
                "error",
                PLANNED,
                problem,
                "a program with exactly-once sinks does not start",
                "see in the output which records after the newest checkpoint it has; without the "
                "file they are written again",
            )
        )
    findings += _rewind_findings(storage)
    findings += _id_findings(storage)
    return PathValidation(storage.url, len(storage.find()), tuple(findings), worst(findings))


def _facts(storage: Storage, topic: str) -> TopicFacts:
    kept = sound_ends(storage, topic)
    newest = max(kept, default=None)
    done = {} if newest is None else {p: end - 1 for p, end in kept[newest].items()}
    read = {}
    for name in storage.names(f"{LOGS}/{topic}"):
        partition = checkpoint_number(name)
        try:
            last = parse_log(storage.read(f"{LOGS}/{topic}/{name}")) - 1
        except (ValueError, NotFoundError):
            continue
        if partition is not None and last != done.get(partition):
            read[partition] = last
    return TopicFacts(topic, newest, len(kept_numbers(storage, topic)), done, read)


def _topic_findings(storage: Storage, topic: str) -> list[Finding]:
    kept = sound_ends(storage, topic)
    numbers = kept_numbers(storage, topic)
    newest = max(kept, default=None)
    findings = []
    for name in storage.names(topic):
        path, number = f"{topic}/{name}", checkpoint_number(name)
        if number is None:
            findings.append(
                Finding("warning", path, "it is not a checkpoint", "it is passed over", "remove it")
            )
        elif number not in kept:
            findings.append(_damaged(path, number, newest))
    if not numbers and not findings:
        return []
    if newest is None:
        findings.append(
            Finding(
                "error",
                topic,
                "none of its files is a sound checkpoint",
                "the program does not start",
                "restore a file from a backup; or remove the folder, to begin where "
                "auto.offset.reset says",
            )
        )
    return findings


def _damaged(path: str, number: int, newest: int | None) -> Finding:
    if newest is None or number > newest:
        before = "" if newest is None else f": the program continues after checkpoint {newest}"
        meaning = f"records that it had as done are processed again{before}"
        return Finding(
            "warning", path, "it is empty, torn or of another form", meaning, "remove it"
        )
    meaning = "nothing reads it; the program cannot go back to it"
    return Finding("note", path, "it is empty, torn or of another form", meaning, "remove it")


def _rewind_findings(storage: Storage) -> Iterator[Finding]:
    try:
        parse_rewind(storage.read(REWIND))
    except NotFoundError:
        return
    except ValueError as error:
        fix = "see by inspect which topics were moved; without the file they stay as they are"
        yield Finding("error", REWIND, str(error), "the program does not start", fix)
    else:
        meaning = "the next start of the program completes it, and so does the same command"
        yield Finding(
            "warning", REWIND, _BEGUN, meaning, "start the program, or repeat the command"
        )


def _id_findings(storage: Storage) -> Iterator[Finding]:
    try:
        read_ids(storage)
    except LogFormatError as error:
        yield Finding("error", TOPICS, error.message, "the program does not start", str(error.hint))


def _planned(storage: Storage) -> int | str | None:
    """Return the batch that is planned, what is wrong with its file, or None without one."""
    try:
        return parse_planned(storage.read(PLANNED)).batch
    except NotFoundError:
        return None
    except ValueError as error:
        return str(error)

"""What ``penstock checkpoint inspect`` shows of a checkpoint path of batches.

Reading changes nothing, and needs no permission to write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.batched.layout import (
    DIRTY_BIT,
    LOGS,
    checkpoint_number,
    parse_checkpoint,
    parse_log,
)
from penstock.checkpoint.tools import Finding
from penstock.errors import ConfigError, NotFoundError
from penstock.storage import Storage, open_existing

_OF_QUERIES = "metadata"  # a file; a topic's name is a folder's


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Where a topic stands."""

    topic: str
    newest: int | None
    """The number of the newest sound checkpoint; None without one."""
    kept: int
    """How many checkpoints there are."""
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
    findings: tuple[Finding, ...]
    """Files that are no checkpoints, and topics without a sound one."""


def is_checkpoint_path(place: str | os.PathLike[str]) -> bool:
    """Whether batches keep their checkpoints there; False for what queries and programs leave."""
    try:
        storage = _open(place)
    except ConfigError:
        return False
    entries = {entry.name: entry for entry in storage.list()}
    if _OF_QUERIES in entries and not entries[_OF_QUERIES].is_folder:
        return False
    if entries.keys() & {DIRTY_BIT, LOGS}:
        return True
    folders = [name for name, entry in entries.items() if entry.is_folder]
    return any(
        checkpoint_number(name) is not None for folder in folders for name in storage.names(folder)
    )


def inspect_path(place: str | os.PathLike[str]) -> PathInspection:
    """Return where the program of a checkpoint path stands.

    Raises:
        ConfigError: there is no such folder, or the URL is not understood.
        StorageError: it cannot be read.
    """
    storage = _open(place)
    folders = [entry.name for entry in storage.list() if entry.is_folder and entry.name != LOGS]
    found = [
        _inspect_topic(storage, each, names) for each in folders if (names := storage.names(each))
    ]
    return PathInspection(
        storage.url,
        storage.exists(DIRTY_BIT),
        tuple(facts for facts, _ in found),
        tuple(finding for _, findings in found for finding in findings),
    )


def _open(place: str | os.PathLike[str]) -> Storage:
    hint = "give the checkpoint_path of from_kafka_batched"
    return open_existing(os.fspath(place), operation="read checkpoint path", hint=hint)


def _inspect_topic(
    storage: Storage, topic: str, names: Sequence[str]
) -> tuple[TopicFacts, list[Finding]]:
    sound: dict[int, dict[int, int]] = {}
    findings: list[Finding] = []
    kept = 0
    for name in names:
        path, number = f"{topic}/{name}", checkpoint_number(name)
        if number is None:
            findings.append(_passed_over(path, "it is not a checkpoint"))
            continue
        kept += 1
        try:
            ends = parse_checkpoint(storage.read(path))
        except (ValueError, NotFoundError) as error:
            findings.append(_passed_over(path, str(error)))
        else:
            sound[number] = {partition: end - 1 for partition, end in ends.items()}
    newest = max(sound, default=None)
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
    done = {} if newest is None else sound[newest]
    read = {p: last for p, last in _read(storage, topic) if last != done.get(p)}
    return TopicFacts(topic, newest, kept, done, read), findings


def _passed_over(path: str, what: str) -> Finding:
    return Finding("warning", path, what, "it is passed over", "remove it")


def _read(storage: Storage, topic: str) -> Iterator[tuple[int, int]]:
    """Yield the partitions of a topic that have a log, and the last offset in it."""
    for name in storage.names(f"{LOGS}/{topic}"):
        partition = checkpoint_number(name)
        try:
            last = parse_log(storage.read(f"{LOGS}/{topic}/{name}")) - 1
        except (ValueError, NotFoundError):
            continue
        if partition is not None:
            yield partition, last

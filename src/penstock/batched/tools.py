"""What ``penstock checkpoint`` shows of a checkpoint path of batches, and how it goes back.

Reading changes nothing and needs no permission to write. A way back is a new checkpoint with older
offsets, under the next number: numbers are never used again, and the checkpoints of before stay. It
is taken under the lock of the path, topic after topic; after a kill in between, the same command
takes the topics that are left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.batched.layout import (
    DIRTY_BIT,
    LOGS,
    PLANNED,
    checkpoint_number,
    checkpoint_path,
    dump_checkpoint,
    parse_checkpoint,
    parse_log,
    parse_planned,
)
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.tools import Finding, Severity, worst
from penstock.errors import AlreadyExistsError, ConcurrentDriverError, ConfigError, NotFoundError
from penstock.storage import Storage, open_existing, open_storage

__all__ = [
    "PathInspection",
    "PathValidation",
    "Rewind",
    "TopicFacts",
    "apply_rewind",
    "inspect_path",
    "is_checkpoint_path",
    "plan_promote",
    "plan_rewind",
    "validate_path",
]

_HINT = "give the checkpoint_path of from_kafka_batched"
_OF_QUERIES = ("metadata", "offsets", "commits")


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


@dataclass(frozen=True, slots=True)
class PathValidation:
    """What is damaged or out of place in a checkpoint path."""

    location: str
    files: int
    findings: tuple[Finding, ...]

    severity: Severity | None
    """The worst of the findings'; None when there are none."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """New checkpoints with older offsets: the ends by partition, by topic."""

    location: str
    before: Mapping[str, tuple[int, Mapping[int, int]]]
    """By topic: the number of the newest file, and the ends of the newest sound checkpoint."""
    after: Mapping[str, Mapping[int, int]]


def is_checkpoint_path(place: str | os.PathLike[str]) -> bool:
    """Whether batches keep their checkpoints there; False for what queries and programs leave."""
    try:
        storage = _open(place)
    except ConfigError:
        return False
    entries = {entry.name: entry for entry in storage.list()}
    if any(name in entries for name in _OF_QUERIES):
        return False
    if entries.keys() & {DIRTY_BIT, LOGS, PLANNED}:
        return True
    return any(_numbers(storage, name) for name, entry in entries.items() if entry.is_folder)


def inspect_path(place: str | os.PathLike[str]) -> PathInspection:
    """Return where the program of a checkpoint path stands.

    Raises:
        ConfigError: there is no such folder, or the URL is not understood.
        StorageError: it cannot be read.
    """
    storage = _open(place)
    planned = _planned(storage)
    return PathInspection(
        storage.url,
        storage.exists(DIRTY_BIT),
        tuple(_facts(storage, topic) for topic in _topics(storage)),
        None if isinstance(planned, str) else planned,
    )


def validate_path(place: str | os.PathLike[str]) -> PathValidation:
    """Find what is damaged in a checkpoint path, or does not belong there.

    Raises: as ``inspect_path``.
    """
    storage = _open(place)
    findings = []
    for topic in _topics(storage):
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
    return PathValidation(storage.url, len(storage.find()), tuple(findings), worst(findings))


def plan_promote(place: str | os.PathLike[str], number: int) -> Rewind:
    """Plan to make the checkpoint of that number the newest one, in each topic.

    Raises:
        ConfigError: a topic does not have it, or it is damaged.
    """
    storage = _open(place)
    return _plan(storage, {t: _ends(storage, t, number) for t in _topics(storage)})


def plan_rewind(
    place: str | os.PathLike[str],
    *,
    shift_by: int | None = None,
    offsets: Mapping[str, Mapping[int, int]] | None = None,
) -> Rewind:
    """Plan to go back, by so many checkpoints of each topic, or to the offsets given.

    Args:
        place: the checkpoint path.
        shift_by: so many checkpoints.
        offsets: the last offset that counts as done, by topic and partition; others stay. -1 is
            before the first record.

    Raises:
        ConfigError: there is no such checkpoint, topic or partition, or not one way was given.
    """
    storage = _open(place)
    if (shift_by is None) == (offsets is None):
        raise _wrong(storage, "one way back is needed", "give a number of checkpoints, or offsets")
    if shift_by is not None:
        return _plan(storage, {t: _earlier(storage, t, shift_by) for t in _topics(storage)})
    assert offsets is not None
    after = {}
    for topic, partitions in offsets.items():
        _, ends = _newest(storage, topic)
        if unknown := sorted(p for p, last in partitions.items() if last > ends.get(p, 0) - 1):
            raise _wrong(
                storage,
                f"partition {unknown[0]} of {topic} is not done as far as that",
                "go back, not forward: inspect shows how far it is done",
            )
        after[topic] = {**ends, **{p: last + 1 for p, last in partitions.items()}}
    return _plan(storage, after)


def apply_rewind(plan: Rewind) -> list[str]:
    """Make the checkpoints of a plan; return their paths.

    What exactly-once sinks had planned is removed: what follows is written as new batches.

    Raises:
        ConcurrentDriverError: the program runs, or made a checkpoint since.
        StorageError: one cannot be written; the same call makes those that are left.
    """
    storage = open_storage(plan.location)
    lock_path = local_path(storage, LOCK_NAME)
    lock = None if lock_path is None else DriverLock(lock_path)
    if lock is not None:
        lock.acquire()
    made = []
    try:
        storage.delete(PLANNED)
        for topic, ends in plan.after.items():
            path = checkpoint_path(topic, plan.before[topic][0] + 1)
            data = dump_checkpoint(ends)
            try:
                storage.create(path, data)
            except AlreadyExistsError as error:
                if storage.read(path) != data:  # else an earlier try's
                    raise ConcurrentDriverError(
                        f"{path} was made since this was planned",
                        operation="rewind",
                        path=storage.uri(path),
                        hint="stop the program, and plan again",
                    ) from error
            made.append(path)
    finally:
        if lock is not None:
            lock.release()
    return made


def _plan(storage: Storage, after: Mapping[str, Mapping[int, int]]) -> Rewind:
    before = {topic: _newest(storage, topic) for topic in after}
    moved = {topic: ends for topic, ends in after.items() if ends != before[topic][1]}
    return Rewind(storage.url, {topic: before[topic] for topic in moved}, moved)


def _open(place: str | os.PathLike[str]) -> Storage:
    return open_existing(os.fspath(place), operation="read checkpoint path", hint=_HINT)


def _topics(storage: Storage) -> list[str]:
    return [entry.name for entry in storage.list() if entry.is_folder and entry.name != LOGS]


def _numbers(storage: Storage, topic: str) -> list[int]:
    return sorted(n for n in map(checkpoint_number, storage.names(topic)) if n is not None)


def _ends(storage: Storage, topic: str, number: int) -> dict[int, int]:
    path = checkpoint_path(topic, number)
    try:
        return parse_checkpoint(storage.read(path))
    except NotFoundError:
        kept = ", ".join(map(str, _numbers(storage, topic))) or "none"
        raise _wrong(storage, f"there is no {path}", f"{topic} has {kept}") from None
    except ValueError as error:
        raise _wrong(storage, f"{path} is damaged: {error}", "choose another one") from error


def _sound(storage: Storage, topic: str) -> dict[int, dict[int, int]]:
    """Return the ends of each sound checkpoint by its number, ascending."""
    found = {}
    for number in _numbers(storage, topic):
        try:
            found[number] = parse_checkpoint(storage.read(checkpoint_path(topic, number)))
        except (ValueError, NotFoundError):
            continue
    return found


def _newest(storage: Storage, topic: str) -> tuple[int, dict[int, int]]:
    sound = _sound(storage, topic)
    if not sound:
        raise _wrong(storage, f"topic {topic} has no sound checkpoint", "see validate")
    return max(_numbers(storage, topic)), sound[max(sound)]


def _earlier(storage: Storage, topic: str, shift_by: int) -> dict[int, int]:
    sound = list(_sound(storage, topic).values())
    if shift_by < 1 or shift_by >= len(sound):
        raise _wrong(
            storage,
            f"there are not {shift_by} checkpoints before the newest one of {topic}",
            f"go back by 1 to {len(sound) - 1}, or give offsets",
        )
    return sound[-1 - shift_by]


def _facts(storage: Storage, topic: str) -> TopicFacts:
    sound = _sound(storage, topic)
    newest = max(sound, default=None)
    done = {} if newest is None else {p: end - 1 for p, end in sound[newest].items()}
    read = {}
    for name in storage.names(f"{LOGS}/{topic}"):
        partition = checkpoint_number(name)
        try:
            last = parse_log(storage.read(f"{LOGS}/{topic}/{name}")) - 1
        except (ValueError, NotFoundError):
            continue
        if partition is not None and last != done.get(partition):
            read[partition] = last
    return TopicFacts(topic, newest, len(_numbers(storage, topic)), done, read)


def _topic_findings(storage: Storage, topic: str) -> list[Finding]:
    sound = _sound(storage, topic)
    numbers = _numbers(storage, topic)
    newest = max(sound, default=None)
    findings = []
    for name in storage.names(topic):
        path, number = f"{topic}/{name}", checkpoint_number(name)
        if number is None:
            findings.append(
                Finding("warning", path, "it is no checkpoint", "it is passed over", "remove it")
            )
        elif number not in sound:
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


def _planned(storage: Storage) -> int | str | None:
    """Return the batch that is planned, what is wrong with its file, or None without one."""
    try:
        return parse_planned(storage.read(PLANNED)).batch
    except NotFoundError:
        return None
    except ValueError as error:
        return str(error)


def _wrong(storage: Storage, what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation="rewind", path=storage.url, hint=hint)

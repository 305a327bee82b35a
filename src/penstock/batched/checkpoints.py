"""A checkpoint path: what of its topics is done, in files that a restart begins after.

    open -> (begin batch -> read: dirty bit, logs -> process -> finish: checkpoint)* -> close

Invariants:

1. A checkpoint holds an offset only if all records up to it are done: it never passes a range that
   is in flight, whatever the logs say, nor what no log says was read.
2. The logs and the dirty bit count within one run. ``open`` removes those of an earlier run, before
   anything is read; what they held is logged. So a checkpoint never holds what an earlier run read
   and did not finish, and they need not survive a power cut.
3. A checkpoint is one file for each topic, created whole, durable and under the next number. What
   was created before a crash between two topics' files is true: those topics continue after it.
4. Offsets do not go back, and a partition that a batch did not touch keeps its own.
5. Where the first batch of a topic begins is durable before it is read (``0.txt``), so that what
   ``auto.offset.reset`` says is asked once.
6. One program uses a path. On local file systems the driver's lock ensures this. On object stores
   the number of a checkpoint does: of two programs that make the same one the second is refused,
   and so is one that finds a higher number than it has made.
7. The dirty bit is removed after the checkpoint, and only when nothing is in flight: so whatever is
   read sets it for a checkpoint to come.

A kill leaves the checkpoints of before, or some topics' or all topics' next one, each of them true.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from penstock.batched.in_flight import InFlight
from penstock.batched.layout import (
    DIRTY_BIT,
    LOGS,
    check_topics,
    checkpoint_number,
    checkpoint_path,
    dump_checkpoint,
    dump_log,
    log_path,
    parse_checkpoint,
    parse_log,
)
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.local_files import local_path
from penstock.errors import (
    AlreadyExistsError,
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    NotFoundError,
)
from penstock.kafka.offsets import KafkaRange, partition_name, split_name
from penstock.storage import Storage, open_storage

__all__ = ["Checkpoints", "newest_checkpoint", "note_read"]

_log = logging.getLogger(__name__)
_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Topic:
    """The newest checkpoint of a topic: ends by partition, and the number that was used last."""

    ends: Mapping[int, int]
    number: int


class Checkpoints:
    """The checkpoint path of one program. Thread-safe after ``open``.

    Args:
        path: a folder, or any URL that ``open_storage`` takes.
        keep: how many checkpoints of each topic are kept.

    Raises:
        ConfigError: the path cannot be used, or ``keep`` is below 1.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 100) -> None:
        if keep < 1:
            raise ConfigError(
                f"{keep} checkpoints cannot be kept",
                operation="open checkpoint path",
                path=os.fspath(path),
                hint="keep 1 or more; usual are 100",
            )
        self._storage = open_storage(path)
        self._volatile = self._storage.without_sync()
        self._keep = keep
        lock = local_path(self._storage, LOCK_NAME)
        self._lock = None if lock is None else DriverLock(lock)
        self._mutex = threading.Lock()
        self._in_flight = InFlight()
        self._topics: dict[str, _Topic] = {}

    @property
    def url(self) -> str:
        """The path as a URL."""
        return self._storage.url

    def open(self, topics: Iterable[str]) -> dict[str, Mapping[int, int]]:
        """Become the program of this path; return the ends by partition of topics with checkpoints.

        Raises:
            ConfigError: a topic's name is reserved.
            ConcurrentDriverError: another program uses the path.
            LogFormatError: a topic has checkpoints, and none of them is sound.
            StorageError: files cannot be read or written.
        """
        topics = list(topics)
        check_topics(topics)
        if self._lock is not None:
            self._lock.acquire()
        try:
            for folder in ("", LOGS, *topics, *(f"{LOGS}/{topic}" for topic in topics)):
                self._storage.sweep(folder)
            found = {topic: self._newest(topic) for topic in topics}
            self._topics = {topic: each for topic, each in found.items() if each is not None}
            self._set_aside()
        except BaseException:
            self.close()
            raise
        return {topic: each.ends for topic, each in self._topics.items()}

    def close(self) -> None:
        """Let other programs use the path."""
        if self._lock is not None:
            self._lock.release()

    def begin_topic(self, topic: str, ends: Mapping[int, int]) -> None:
        """Make durable where the first batch of a topic without checkpoints begins."""
        self._topics[topic] = self._create(topic, ends, 0)

    def begin(self, ranges: Iterable[KafkaRange]) -> None:
        """Take in a batch, before anything of it is read."""
        with self._mutex:
            self._in_flight.begin(list(ranges))

    def finish(self, ranges: Iterable[KafkaRange]) -> None:
        """Take in that ranges are done, and make a checkpoint if a batch is by that.

        Raises:
            ConcurrentDriverError: another program made a checkpoint.
            StorageError: it could not be written.
        """
        with self._mutex:
            if self._in_flight.finish(ranges) and self._storage.exists(DIRTY_BIT):
                self._add()

    def in_flight(self) -> set[KafkaRange]:
        """Return the ranges that are not done."""
        with self._mutex:
            return self._in_flight.ranges()

    def _add(self) -> None:
        done = {
            name: end for name, end in self._in_flight.done().items() if end > self._end_of(name)
        }
        topics: dict[str, dict[int, int]] = {}
        for name, end in _in_parallel(self._as_read, done.items()):
            topic, partition = split_name(name)
            if end > self._end_of(name):
                topics.setdefault(topic, {})[partition] = end
        made = _in_parallel(self._add_topic, topics.items())
        self._topics.update(zip(topics, made, strict=True))
        if not self._in_flight.ranges():
            self._volatile.delete(DIRTY_BIT)

    def _end_of(self, name: str) -> int:
        topic, partition = split_name(name)
        return self._topics[topic].ends.get(partition, 0)

    def _as_read(self, done: tuple[str, int]) -> tuple[str, int]:
        """Return how far a partition is done and its log says that it was read."""
        name, end = done
        path = log_path(*split_name(name))
        try:
            return name, min(end, parse_log(self._storage.read(path)))
        except (NotFoundError, ValueError):
            return name, 0

    def _add_topic(self, item: tuple[str, Mapping[int, int]]) -> _Topic:
        topic, ends = item
        before = self._topics[topic]
        made = self._create(topic, {**before.ends, **ends}, before.number + 1)
        old = {made.number - self._keep, 0 if made.number == 1 else -1}
        for number in old:
            if number >= 0:
                self._volatile.delete(checkpoint_path(topic, number))
        return made

    def _create(self, topic: str, ends: Mapping[int, int], number: int) -> _Topic:
        path = checkpoint_path(topic, number)
        try:
            self._storage.create(path, dump_checkpoint(ends))
        except AlreadyExistsError as error:
            raise self._concurrent(path) from error
        if self._lock is None:
            others = self._storage.names(topic)
            if max(n for n in map(checkpoint_number, others) if n is not None) > number:
                raise self._concurrent(path)
        return _Topic(ends, number)

    def _concurrent(self, path: str) -> ConcurrentDriverError:
        return ConcurrentDriverError(
            f"another program made the checkpoint {path} or a later one",
            operation="add checkpoint",
            path=self._storage.uri(path),
            hint="stop one of the two programs, or give each a checkpoint path of its own; then "
            "start again: it begins after the newest checkpoint",
        )

    def _newest(self, topic: str) -> _Topic | None:
        found = newest_checkpoint(self._storage, topic)
        if found is None:
            return None
        names = self._storage.names(topic)
        numbers = [n for n in map(checkpoint_number, names) if n is not None]
        self._volatile.delete_all(
            [checkpoint_path(topic, n) for n in numbers if n <= max(numbers) - self._keep]
        )
        return _Topic(found, max(numbers))

    def _set_aside(self) -> None:
        """Remove the dirty bit and the logs of an earlier run, and say what they held."""
        self._volatile.delete(DIRTY_BIT)
        paths = self._storage.find(LOGS)
        read = {}
        for path in paths:
            topic, _, name = path.removeprefix(f"{LOGS}/").rpartition("/")
            partition = checkpoint_number(name)
            with suppress(ValueError, NotFoundError):
                end = parse_log(self._storage.read(path))
                ends = self._topics[topic].ends if topic in self._topics else {}
                if partition is not None and end > ends.get(partition, 0):
                    read[partition_name(topic, partition)] = (ends.get(partition, 0), end)
        if read:
            _log.warning(
                "An earlier run on %s read records that no checkpoint has; they are read again: %s",
                self.url,
                ", ".join(f"{name} [{start}, {end})" for name, (start, end) in read.items()),
            )
        self._volatile.delete_all(paths)


def newest_checkpoint(storage: Storage, topic: str) -> dict[int, int] | None:
    """Return the ends by partition of a topic's newest sound checkpoint, None if it has none.

    Files that are not sound, or no checkpoints, are named in a warning.

    Raises:
        LogFormatError: there are files, and none of them is a sound checkpoint.
    """
    names = storage.names(topic)
    numbers = {n: name for name in names if (n := checkpoint_number(name)) is not None}
    wrong = [f"{topic}/{name}: no checkpoint" for name in names if checkpoint_number(name) is None]
    for number in sorted(numbers, reverse=True):
        path = checkpoint_path(topic, number)
        try:
            ends = parse_checkpoint(storage.read(path))
        except (ValueError, NotFoundError) as error:
            wrong.append(f"{path}: {error}")
            continue
        if wrong:
            _log.warning(
                "Topic %s continues after checkpoint %d of %s; passed over: %s",
                topic,
                number,
                storage.url,
                "; ".join(wrong),
            )
        return ends
    if not wrong:
        return None
    raise LogFormatError(
        f"topic {topic} has files, and none of them is a sound checkpoint: {'; '.join(wrong)}",
        operation="read checkpoint",
        path=storage.uri(topic),
        ids={"topic": topic},
        hint="restore a file from a backup; or remove the folder, to begin where auto.offset.reset "
        "says",
    )


def note_read(storage: Storage, topic: str, partition: int, end: int) -> None:
    """Record that a partition was read up to ``end``: the dirty bit first, then its log."""
    volatile = storage.without_sync()
    if not volatile.exists(DIRTY_BIT):
        with suppress(AlreadyExistsError):
            volatile.create(DIRTY_BIT, b"")
    volatile.create(log_path(topic, partition), dump_log(end), overwrite=True)


def _in_parallel(step: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    items = list(items)
    if len(items) < 2:
        return [step(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as threads:
        return list(threads.map(step, items))

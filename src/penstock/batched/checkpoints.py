"""A checkpoint path: what of its topics is done, in files that a restart begins after.

    open -> (begin batch -> read: dirty bit, logs -> process -> finish: checkpoint)* -> close

Invariants:

1. A checkpoint holds an offset only if all records up to it are done: it never passes a range that
   is in flight, whatever the logs say, nor records that no log has as read.
2. The logs and the dirty bit count within one run. ``open`` removes those of an earlier run, before
   anything is read, with a warning. So a checkpoint never holds what an earlier run read
   and did not finish, and they need not survive a power cut.
3. A checkpoint is one file for each topic, created whole, durable and under the next number. What
   was created before a crash between two topics' files is true: those topics continue after it.
4. Offsets do not go back, and a partition that a batch did not touch keeps its own; one that came
   while the program ran has where it begins, from its topic's next checkpoint on.
5. Where the first batch of a topic begins is durable before it is read (``0.txt``), so that
   ``auto.offset.reset`` is applied once.
6. One program uses a path. On local file systems the driver's lock ensures this. On object stores
   the number of a checkpoint does: the second of two programs that make the same one is refused,
   and so is one that finds a higher number than it has made.
7. The dirty bit is removed after the checkpoint, and only when nothing is in flight: so whatever is
   read sets it for a checkpoint to come.

A topic is known by its name alone: see docs/batched.md for one that is deleted and created again.

A kill leaves the checkpoints of before, or some topics' or all topics' next one, each of them true.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
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
    StorageError,
    UnsharedPathError,
)
from penstock.kafka.offsets import KafkaRange, split_name
from penstock.storage import Storage, open_storage

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
    """The checkpoint path of one run of a program. Thread-safe after ``open``.

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
        self._new: dict[str, Mapping[int, int]] = {}
        self._is_open = False

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
            self._set_aside()
            for topic in topics:
                self._storage.sweep(topic)
            found = {topic: self._newest(topic) for topic in topics}
        except BaseException:
            self._unlock()
            raise
        self._topics = {topic: each for topic, each in found.items() if each is not None}
        self._is_open = True
        return {topic: each.ends for topic, each in self._topics.items()}

    def close(self) -> None:
        """Let other programs use the path; what is in flight gets into no checkpoint."""
        with self._mutex:
            if self._is_open:
                self._is_open = False
                self._unlock()

    def begin_topic(self, topic: str, ends: Mapping[int, int]) -> None:
        """Make durable where the first batch of a topic without checkpoints begins."""
        self._topics[topic] = self._create(topic, ends, 0)

    def begin(
        self,
        ranges: Iterable[KafkaRange],
        new: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Take in a batch, before anything of it is read.

        ``new`` is where those partitions begin, by topic, that were not there at the start.
        """
        with self._mutex:
            self._new.update({topic: dict(begins) for topic, begins in new.items()})
            self._in_flight.begin(list(ranges))

    def finish(self, ranges: Iterable[KafkaRange]) -> None:
        """Take in that ranges are done, and make a checkpoint if a batch is by that.

        Does nothing once the path is closed.

        Raises:
            ConcurrentDriverError: another program made a checkpoint.
            StorageError: it could not be written.
            UnsharedPathError: whoever read the ranges left no dirty bit that this program sees.
        """
        ranges = list(ranges)
        with self._mutex:
            if self._is_open and ranges:
                self._check_noted()
                if self._in_flight.finish(ranges):
                    self._add()

    def in_flight(self) -> set[KafkaRange]:
        """Return the ranges that are not done."""
        with self._mutex:
            return self._in_flight.ranges()

    def _check_noted(self) -> None:
        # On a store without locks another program may remove it at its end; it leaves the logs.
        is_noted = self._storage.exists(DIRTY_BIT) or (
            self._lock is None and bool(self._storage.find(LOGS))
        )
        if not is_noted:
            raise UnsharedPathError(
                "tasks have read records, and their dirty bit is not in the checkpoint path: they "
                "do not see the driver's files",
                operation="add checkpoint",
                path=self.url,
                hint="give a checkpoint_path that driver and executors share",
            )

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _add(self) -> None:
        done = {
            name: end for name, end in self._in_flight.done().items() if end > self._end_of(name)
        }
        topics: dict[str, dict[int, int]] = {}
        # A local log is read in less time than a thread starts; a request takes many times that.
        read = map if self._lock is not None else _in_parallel
        for name, end in read(self._as_read, done.items()):
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
        return name, min(end, _read_up_to(self._storage, log_path(*split_name(name))))

    def _add_topic(self, item: tuple[str, Mapping[int, int]]) -> _Topic:
        topic, ends = item
        before = self._topics[topic]
        ends = {**self._new.get(topic, {}), **before.ends, **ends}
        made = self._create(topic, ends, before.number + 1)
        old = {made.number - self._keep, 0 if made.number == 1 else -1}
        self._retire(topic, [number for number in old if number >= 0])
        return made

    def _retire(self, topic: str, numbers: Sequence[int]) -> None:
        try:
            self._volatile.delete_all([checkpoint_path(topic, number) for number in numbers])
        except StorageError as error:  # a folder with such a name, say: it does no harm
            _log.warning("An old checkpoint of topic %s stays: %s", topic, error)

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
            hint="stop one of the two programs, or give each a checkpoint path of its own; if "
            "there is no other one, remove what has this name and is no file. Then start again: "
            "the program continues after its newest checkpoint",
        )

    def _newest(self, topic: str) -> _Topic | None:
        found = _newest_sound(self._storage, topic)
        if found is None:
            return None
        # A folder, too, stands in the way of a file.
        names = (entry.name for entry in self._storage.list(topic))
        numbers = [n for n in map(checkpoint_number, names) if n is not None]
        kept = min(max(numbers) - self._keep + 1, found[0])
        self._retire(topic, [n for n in numbers if n < kept])
        return _Topic(found[1], max(numbers))

    def _set_aside(self) -> None:
        """Remove the dirty bit and the logs of an earlier run."""
        paths = self._storage.find(LOGS)
        topics = (entry.name for entry in self._storage.list(LOGS) if entry.is_folder)
        for folder in ("", LOGS, *(f"{LOGS}/{topic}" for topic in topics)):
            self._storage.sweep(folder)
        if self._storage.exists(DIRTY_BIT):
            _log.warning(
                "An earlier run on %s read records that no checkpoint has; they are read again",
                self.url,
            )
            self._volatile.delete(DIRTY_BIT)
        self._volatile.delete_all(paths)


def _newest_sound(storage: Storage, topic: str) -> tuple[int, dict[int, int]] | None:
    """Return the number of a topic's newest sound checkpoint, and its ends by partition.

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
        return number, ends
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
    """Record that a partition was read up to ``end``: the dirty bit first, then its log.

    A log does not go back: concurrent tasks may end in any order, and a second copy of a task late.
    The files of ``storage`` need not survive a power cut: see invariant 2.
    """
    if not storage.exists(DIRTY_BIT):
        with suppress(AlreadyExistsError):
            storage.create(DIRTY_BIT, b"")
    path = log_path(topic, partition)
    if end > _read_up_to(storage, path):
        storage.create(path, dump_log(end), overwrite=True)


def _read_up_to(storage: Storage, path: str) -> int:
    """Return what a log says, 0 without a sound one."""
    try:
        return parse_log(storage.read(path))
    except (NotFoundError, ValueError):
        return 0


def _in_parallel(step: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    items = list(items)
    if len(items) < 2:
        return [step(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as threads:
        return list(threads.map(step, items))

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
4. Offsets do not go back, and a partition that a batch did not touch keeps its own; one that came
   while the program ran has where it begins, from its topic's next checkpoint on.
5. Where the first batch of a topic begins is durable before it is read (``0.txt``), so that what
   ``auto.offset.reset`` says is asked once.
6. One program uses a path. On local file systems the driver's lock ensures this. On object stores
   the number of a checkpoint does: of two programs that make the same one the second is refused,
   and so is one that finds a higher number than it has made.
7. The dirty bit is removed after the checkpoint, and only when nothing is in flight: so whatever is
   read sets it for a checkpoint to come.

8. A rewind that a command began (penstock.batched.rewind) is completed before anything is read.
9. Which topic a checkpoint counts in is durable before it is (``topics``): under the topic's name
   there may be another one, in which the same offsets are other records'.

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
from penstock.batched.kept import read_ids
from penstock.batched.layout import (
    DIRTY_BIT,
    LOGS,
    PLANNED,
    TOPICS,
    Planned,
    TopicIds,
    check_topics,
    checkpoint_number,
    checkpoint_path,
    dump_checkpoint,
    dump_log,
    dump_planned,
    dump_topics,
    id_at,
    log_path,
    parse_checkpoint,
    parse_log,
    parse_planned,
    with_id,
)
from penstock.batched.rewind import complete_rewind
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
from penstock.kafka.offsets import KafkaRange, partition_name, split_name
from penstock.storage import Storage, open_storage

__all__ = ["Checkpoints", "note_read"]

_log = logging.getLogger(__name__)
_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Topic:
    """The newest checkpoint of a topic: ends by partition, and the number that was used last."""

    ends: Mapping[int, int]
    number: int
    sound: int
    """The number of the checkpoint that has the ends: a later one may be damaged."""


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
        self._new: dict[str, Mapping[int, int]] = {}
        self._users = 0

    @property
    def is_open(self) -> bool:
        """Whether this is the program of the path."""
        return self._users > 0

    @property
    def url(self) -> str:
        """The path as a URL."""
        return self._storage.url

    def open(self, topics: Iterable[str]) -> dict[str, Mapping[int, int]]:
        """Become the program of this path; return the ends by partition of topics with checkpoints.

        Sources that are joined may call it one after the other, each with topics of its own.

        Raises:
            ConfigError: a topic's name is reserved.
            ConcurrentDriverError: another program uses the path.
            LogFormatError: a topic has checkpoints, and none of them is sound.
            StorageError: files cannot be read or written.
        """
        topics = list(topics)
        check_topics(topics)
        with self._mutex:
            if twice := sorted(self._topics.keys() & topics):
                raise self._in_use(twice[0])
            if not self._users:
                self._take_over()
            self._users += 1
            try:
                for topic in topics:
                    self._storage.sweep(topic)
                found = {topic: self._newest(topic) for topic in topics}
            except BaseException:
                self._leave()
                raise
            self._topics |= {topic: each for topic, each in found.items() if each is not None}
        return {topic: each.ends for topic, each in found.items() if each is not None}

    def ends(self) -> dict[str, Mapping[int, int]]:
        """Return the ends by partition of each topic that has checkpoints."""
        return {topic: each.ends for topic, each in self._topics.items()}

    def close(self, topics: Iterable[str] = ()) -> None:
        """Take the ``open`` of topics back; with the last one, let other programs use the path.

        What is in flight then gets into no checkpoint.
        """
        with self._mutex:
            self._in_flight.forget(topics)
            for topic in topics:
                self._topics.pop(topic, None)
                self._new.pop(topic, None)
            if self._users:
                self._leave()

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

        Raises:
            ConcurrentDriverError: another program made a checkpoint.
            StorageError: it could not be written.
        """
        with self._mutex:
            is_done = self.is_open and self._in_flight.finish(ranges)
            if is_done and self._storage.exists(DIRTY_BIT):
                self._add()

    def check_noted(self) -> None:
        """Check that whoever read has left the dirty bit where this program sees it.

        Raises:
            UnsharedPathError: it is not there, so no checkpoint would ever be made.
        """
        # Of a store without locks another program that ends may remove it, and leaves the logs.
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

    def in_flight(self) -> set[KafkaRange]:
        """Return the ranges that are not done."""
        with self._mutex:
            return self._in_flight.ranges()

    def planned(self) -> Planned | None:
        """Return the batch that exactly-once sinks of an earlier run planned last.

        Raises:
            LogFormatError: its file is damaged.
        """
        try:
            return parse_planned(self._storage.read(PLANNED))
        except NotFoundError:
            return None
        except ValueError as error:
            raise LogFormatError(
                f"the file of the planned batch is damaged: {error}",
                operation="read planned batch",
                path=self._storage.uri(PLANNED),
                hint="see in the output which of the records after the newest checkpoint it has; "
                "without the file they are written again",
            ) from error

    def first_planned(self, first: Planned) -> Planned:
        """Return what ``planned`` does; make ``first`` durable if that is nothing.

        Raises: as ``planned``.
        """
        with suppress(AlreadyExistsError):
            self._storage.create(PLANNED, dump_planned(first))
            return first
        return self.planned() or self.first_planned(first)

    def plan(self, planned: Planned, last: Planned) -> None:
        """Make a batch durable, for exactly-once sinks, before anything of it is written.

        Raises:
            ConcurrentDriverError: another program has planned since ``last``.
        """
        if self._lock is None and self.planned() != last:
            raise self._concurrent(PLANNED)
        self._storage.create(PLANNED, dump_planned(planned), overwrite=True)

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that the checkpoints count in, where they are known.

        Raises:
            LogFormatError: their file is damaged.
        """
        known = read_ids(self._storage)
        found = {topic: id_at(of, self._sound(topic, of)) for topic, of in known.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    def note_topic_ids(self, ids: Mapping[str, str]) -> None:
        """Make durable which topics the checkpoints count in, before anything of them is read."""
        with self._mutex:
            known: TopicIds = read_ids(self._storage)
            before = known
            for topic, topic_id in ids.items():
                of = known.get(topic, {})
                if topic not in self._topics:  # what is noted was of checkpoints that are gone
                    known = {**known, topic: {0: topic_id}}
                    continue
                sound = self._sound(topic, of)
                if id_at(of, sound) is None:
                    known = with_id(
                        known, topic, max((n for n in of if n <= sound), default=0), topic_id
                    )
                known = with_id(known, topic, self._topics[topic].number + 1, topic_id)
            if known != before:
                self._storage.create(TOPICS, dump_topics(known), overwrite=True)

    def _sound(self, topic: str, ids: Mapping[int, str | None]) -> int:
        return self._topics[topic].sound if topic in self._topics else max(ids, default=0)

    def complete(self, ranges: Iterable[KafkaRange]) -> None:
        """Make the checkpoints of ranges that an earlier run finished."""
        topics: dict[str, dict[int, int]] = {}
        for each in ranges:
            topics.setdefault(each.topic, {})[each.partition] = each.end_offset
        self._topics.update(zip(topics, map(self._add_topic, topics.items()), strict=True))

    def _take_over(self) -> None:
        if self._lock is not None:
            self._lock.acquire()
        self._in_flight = InFlight()
        try:
            if made := complete_rewind(self._storage):
                _log.warning("A rewind of %s was not complete: made %s", self.url, ", ".join(made))
            self._set_aside()
        except BaseException:
            self._unlock()
            raise

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._topics, self._new = {}, {}
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _in_use(self, topic: str) -> ConcurrentDriverError:
        return ConcurrentDriverError(
            f"topic {topic} is read by another stream of this process, with this checkpoint path",
            operation="open checkpoint path",
            path=self.url,
            ids={"topic": topic},
            hint="stop that one, or give this one a checkpoint path of its own",
        )

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
            if self._storage.exists(path):
                raise self._concurrent(path) from error
            raise StorageError(
                f"{path} is in the way of the next checkpoint, and is not a file",
                operation="add checkpoint",
                path=self._storage.uri(path),
                hint="remove it (a pipe, or a link to nothing); a restart continues after the "
                "newest checkpoint",
            ) from error
        if self._lock is None:
            others = self._storage.names(topic)
            if max(n for n in map(checkpoint_number, others) if n is not None) > number:
                raise self._concurrent(path)
        return _Topic(ends, number, number)

    def _concurrent(self, path: str) -> ConcurrentDriverError:
        return ConcurrentDriverError(
            f"another program made the checkpoint {path} or a later one",
            operation="add checkpoint",
            path=self._storage.uri(path),
            hint="stop one of the two programs, or give each a checkpoint path of its own; then "
            "start again: it begins after the newest checkpoint",
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
        return _Topic(found[1], max(numbers), found[0])

    def _set_aside(self) -> None:
        """Remove the dirty bit and the logs of an earlier run, and say what they held."""
        paths = self._storage.find(LOGS)
        topics = (entry.name for entry in self._storage.list(LOGS) if entry.is_folder)
        for folder in ("", LOGS, *(f"{LOGS}/{topic}" for topic in topics)):
            self._storage.sweep(folder)
        self._volatile.delete(DIRTY_BIT)
        if read := ", ".join(filter(None, map(self._only_read, paths))):
            _log.warning(
                "An earlier run on %s read records that no checkpoint has; they are read again: %s",
                self.url,
                read,
            )
        self._volatile.delete_all(paths)

    def _only_read(self, path: str) -> str:
        """Return what a log has beyond the newest checkpoint, in words; "" for nothing."""
        topic, _, name = path.removeprefix(f"{LOGS}/").rpartition("/")
        partition, done = checkpoint_number(name), dict[int, int]()
        with suppress(LogFormatError):
            done = (_newest_sound(self._storage, topic, tell=False) or (0, done))[1]
        with suppress(ValueError, NotFoundError):
            end = parse_log(self._storage.read(path))
            if partition is not None and end > (start := done.get(partition, 0)):
                return f"{partition_name(topic, partition)} [{start}, {end})"
        return ""


def _newest_sound(
    storage: Storage, topic: str, tell: bool = True
) -> tuple[int, dict[int, int]] | None:
    """Return the number of a topic's newest sound checkpoint, and its ends by partition.

    Files that are not sound, or no checkpoints, are named in a warning, unless not to ``tell``.

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
        if wrong and tell:
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

    A log does not go back: tasks that read at once may end in any order, and copies of a task late.
    ``storage`` need not be one whose files survive a power cut: see invariant 2.
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

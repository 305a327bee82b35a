"""The versions of an operator's state, which the driver commits when all partitions are done.

Invariants:

1. Version N exists if and only if batch N of the operator is done: it names the newest delta of
   every partition. It is created exclusively and never changes, so one of two drivers fails, and a
   batch that runs again finds its result and repeats nothing.
2. Versions are published in the order of their batches.
3. ``retire`` deletes the oldest first and always keeps the newest.
4. A version is published only after the driver has seen each file that it names. Executors write
   these files: on a path that is not shared the driver would never see them.

A version's time is that of its batch. An operator over windows has a version for each of its
slides, which are not all batches; the predecessor of a version is the next older one, whatever its
time. Time 0 is the initial state.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import AlreadyExistsError, ConcurrentDriverError, UnsharedPathError
from penstock.state.layout import (
    parse_version,
    partition_folder,
    version_path,
    versions_folder,
)
from penstock.state.state_file import encode_file, open_file
from penstock.storage import Storage

__all__ = ["PartitionVersion", "Version", "VersionLog", "read_version", "version_times"]


@dataclass(frozen=True)
class PartitionVersion:
    """The entry of a version for one partition.

    ``tip`` is the name of the newest delta, None while the partition is empty. ``oldest_ms`` is a
    time before which no key was touched, None if unknown.
    """

    tip: str | None = None
    oldest_ms: int | None = None


@dataclass(frozen=True)
class Version:
    """An operator's state after the batch of that time."""

    time_ms: int
    partitions: tuple[PartitionVersion, ...]

    @property
    def tips(self) -> tuple[str | None, ...]:
        """The newest deltas."""
        return tuple(partition.tip for partition in self.partitions)

    def may_be_untouched_since(self, time_ms: int) -> bool:
        """Whether keys may exist that were last touched before that time."""
        held = (part.oldest_ms for part in self.partitions if part.tip is not None)
        return any(oldest_ms is None or oldest_ms < time_ms for oldest_ms in held)


def version_times(storage: Storage, operator: str) -> list[int]:
    """Return the times of an operator's versions, ascending. Raises StorageError."""
    names = [entry.name for entry in storage.list(versions_folder(operator))]
    return sorted(time_ms for name in names if (time_ms := parse_version(name)) is not None)


def read_version(storage: Storage, operator: str, time_ms: int) -> Version:
    """Return a version.

    Raises:
        MissingStateError, DamagedStateError: it is missing or damaged.
    """
    file = open_file(storage, version_path(operator, time_ms), "version")
    return Version(time_ms, tuple(PartitionVersion(*part) for part in file.facts["partitions"]))


class VersionLog:
    """The versions of one operator, listed once; after that this is their only writer.

    Args:
        storage: holds the state of all operators.
        operator: the operator's name.
        check_files: whether to check that each file that a version names exists; not needed if this
            machine wrote all of them.

    Raises:
        StorageError: they cannot be listed.
    """

    def __init__(self, storage: Storage, operator: str, *, check_files: bool = True) -> None:
        self._storage = storage
        self._operator = operator
        self._check_files = check_files
        self._seen: frozenset[str] = frozenset()  # the files that the newest version names
        storage.sweep(versions_folder(operator))
        self._times = version_times(storage, operator)

    @property
    def times(self) -> tuple[int, ...]:
        """The times of all versions, ascending."""
        return tuple(self._times)

    def publish(self, version: Version) -> None:
        """Make a version durable. The call may be repeated.

        Raises:
            ConcurrentDriverError: another driver published a different one.
            UnsharedPathError: this process does not see files that the version names.
            StorageError: it cannot be written.
        """
        if self._check_files:
            self._see_files(version)
        path = version_path(self._operator, version.time_ms)
        facts = {"partitions": [(part.tip, part.oldest_ms) for part in version.partitions]}
        try:
            self._storage.create(path, encode_file("version", facts, {}))
        except AlreadyExistsError as error:
            if read_version(self._storage, self._operator, version.time_ms) != version:
                raise ConcurrentDriverError(
                    f"another driver published this version of the state of {self._operator!r}",
                    operation="publish state",
                    path=self._storage.uri(path),
                    ids={"operator": self._operator},
                    hint="stop the other driver; this one may then be started again",
                ) from error
        if version.time_ms not in self._times:
            self._times.append(version.time_ms)

    def retire(self, needed_ms: int) -> None:
        """Delete the versions before the newest one that is at or before ``needed_ms``.

        Raises:
            StorageError: one cannot be deleted; the next call continues.
        """
        while len(self._times) > 1 and self._times[1] <= needed_ms:
            self._storage.delete(version_path(self._operator, self._times[0]))
            del self._times[0]

    def _see_files(self, version: Version) -> None:
        """Check with one listing that the files exist that the previous version did not name."""
        tips = enumerate(version.tips)
        named = frozenset(
            f"{partition_folder(self._operator, number)}/{tip}" for number, tip in tips if tip
        )
        if new := named - self._seen:
            # A listing of a mounted file system may be older than a lookup by name.
            unlisted = sorted(new.difference(self._storage.find(self._operator)))
            missing = [path for path in unlisted if not self._storage.exists(path)]
            if missing:
                raise self._not_seen(missing, len(new))
        self._seen = named

    def _not_seen(self, missing: list[str], count: int) -> UnsharedPathError:
        return UnsharedPathError(
            f"the driver does not see {len(missing)} of {count} files that executors wrote for this"
            f" version of the state of {self._operator!r}, such as {missing[0]}",
            operation="publish state",
            path=self._storage.url,
            ids={"operator": self._operator},
            hint="choose a checkpoint location on a file system that is mounted on every host, or "
            "an object store, and check the mounts: an executor wrote to a path of its own host",
        )

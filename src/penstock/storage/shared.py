"""Whether processes on other machines see the same files as this one.

    probes/<token>.driver         written by the driver; each executor must see it
    probes/<token>.<number>       written by an executor; the driver must see it

On a path that is not shared (a folder on each machine's own disk, a mount that one machine lacks)
executors can write, but the driver does not see their files. So the path is tested before anything
depends on it.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError, UnsharedPathError
from penstock.storage.base import Storage

_FOLDER = "probes"


@dataclass(frozen=True)
class Probed:
    """The result of a probe: its host, the file that it created, or why it could not create one."""

    host: str
    process_id: int
    file: str
    error: str | None = None


@dataclass(frozen=True)
class Probe:
    """A task for executors: checks for the driver's file and creates one. Needs no Spark."""

    storage: Storage
    token: str

    @classmethod
    def begin(cls, storage: Storage) -> Probe:
        """Write the driver's file; raises StorageError."""
        probe = cls(storage, secrets.token_hex(8))
        storage.create(probe.file("driver"), b"")
        return probe

    def file(self, name: object) -> str:
        """Return the path of a probe's file."""
        return f"{_FOLDER}/{self.token}.{name}"

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[Probed]:
        """Yield the result of this process."""
        file, error = self.file(number), None
        try:
            if self.storage.exists(self.file("driver")):
                self.storage.create(file, b"", overwrite=True)  # Spark may run a task twice
            else:
                error = "it does not see the driver's files"
        except PenstockError as failure:
            error = str(failure)
        yield Probed(socket.gethostname(), os.getpid(), file, error)

    def end(self, count: int) -> None:
        """Remove the files of ``count`` tasks and the driver's; raises StorageError."""
        for name in ("driver", *range(count)):
            self.storage.delete(self.file(name))


def check_probed(storage: Storage, found: Sequence[Probed]) -> None:
    """Check that every process sees the driver's files, and that this one sees theirs.

    Raises:
        UnsharedPathError: some do not; the error names their hosts.
    """
    seen = {f"{_FOLDER}/{entry.name}" for entry in storage.list(_FOLDER)}
    apart = {
        each.host: each.error or "the driver does not see its files"
        for each in found
        if each.error is not None or each.file not in seen
    }
    if apart:
        raise UnsharedPathError(
            "executors do not share the checkpoint location with the driver: "
            + "; ".join(f"on {host} {why}" for host, why in sorted(apart.items())),
            operation="probe checkpoint location",
            path=storage.url,
            hint="choose a path on a file system that is mounted on every host, or an object store",
        )

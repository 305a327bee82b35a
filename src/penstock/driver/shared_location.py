"""Tests at start that every executor shares the checkpoint location with the driver.

    probes/<token>.driver         written by the driver; each executor must see it
    probes/<token>.<number>       written by an executor; the driver must see it

On a path that is not shared (a folder on each machine's own disk, a mount that one machine lacks)
executors can write, but the driver does not see their files.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from penstock.driver.spark import live_executors, rdd_on_each
from penstock.errors import ConfigError, PenstockError, StorageError, UnsharedPathError
from penstock.root_cause import raised_by_worker
from penstock.storage import Storage

_log = logging.getLogger(__name__)
_FOLDER = "probes"
_CANNOT_LOAD = ("ModuleNotFoundError", "ImportError", "AttributeError")
"""Errors of a worker that unpickles a task without its code, or with other code."""


def check_shared(sc: SparkContext, storage: Storage) -> None:
    """Run a task on each executor that checks for the driver's files and creates one.

    Executors that are added later are not probed: their files are checked when they are published.

    Raises:
        ConfigError: an executor lacks penstock or a client of the storage, or has another version.
        UnsharedPathError: an executor does not share the location; the error names the hosts.
        StorageError: the driver cannot write there.
    """
    sc.parallelize([0], 1).count()  # waits for the first executor
    executors = live_executors(sc)
    probe = Probe.begin(storage)
    try:
        tasks = rdd_on_each(sc, None, executors).mapPartitionsWithIndex(probe)
        check_probed(storage, tasks.collect())
    except Py4JJavaError as error:
        raised = raised_by_worker(str(error))
        if not raised.startswith(_CANNOT_LOAD):
            raise
        raise ConfigError(
            f"executors' Python cannot load this driver's penstock: {raised}",
            operation="probe executors",
            hint="install the same penstock-spark with the same extras for their Python, which "
            "spark.pyspark.python names (docs/clusters.md)",
        ) from error
    finally:
        try:
            probe.end(len(executors))
        except StorageError:
            _log.warning("Files of the probe of %s cannot be removed", storage.url, exc_info=True)


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

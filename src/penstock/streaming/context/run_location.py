"""The location of a run: the checkpoint location, or a temporary one.

    ssc.checkpoint(dir)                                     dir
    spark.sql.streaming.checkpointLocation, and queryName   <checkpointLocation>/<queryName>
    spark.sql.streaming.checkpointLocation                  <checkpointLocation>/<random UUID>
    neither                                                 a temporary folder

The first that applies counts, as for a query of Structured Streaming (ResolveWriteToStream).

A killed process leaves its temporary folder, so the next process that creates one removes it.
Invariant: such a folder is removed only if it belongs to this user and its driver lock is free,
which shows that no driver uses it. A driver may have created a lock file younger than a minute and
not locked it yet: its folder is kept until the next time.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark import SparkContext

from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.conf import WRITE_AHEAD_LOG, StreamingSettings
from penstock.errors import ConfigError, PenstockError
from penstock.streaming.engine.graph import DStreamGraph

_log = logging.getLogger(__name__)
_PREFIX = "penstock-run-"
_STARTING_S = 60.0


def configured_location(settings: StreamingSettings, query_name: str | None) -> str | None:
    """Return the checkpoint location of a program that sets none; None if the settings do not."""
    if settings.checkpoint_location is None:
        return None
    location = f"{settings.checkpoint_location.rstrip('/')}/{query_name or uuid.uuid4()}"
    if query_name is None:
        _log.warning(
            "The program has no queryName, so its checkpoint location has a random name: %s. The "
            "next start gets another one and does not continue this run: it finds neither its "
            "offsets and state nor the received records that no batch has processed. To fix: "
            "StreamingContext(..., queryName='...')",
            location,
        )
    else:
        _log.info("The checkpoint location of %r is %s", query_name, location)
    return location


class RunLocation:
    """The location of one program.

    Args:
        directory: the program's checkpoint location; None for a temporary one, which is deleted
            with the program, at the latest with the process: its data survives neither the process
            nor a power cut.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._temporary: str | None = None

    def open(self, sc: SparkContext, graph: DStreamGraph, settings: StreamingSettings) -> str:
        """Return the path or URL.

        Raises:
            ConfigError: no checkpoint location is set, and this program requires one.
        """
        if self._directory is not None:
            for stream in (stream for stream in graph.inputs if stream.is_volatile):
                _log.warning(
                    "Input %s holds its data in memory, and loses it when the process ends; use it "
                    "in tests only",
                    stream.name,
                )
            return self._directory
        _check_temporary_is_enough(str(sc.master), graph, settings)
        for stream in (stream for stream in graph.inputs if stream.continues_in_source):
            _log.warning(
                "No checkpoint location is set: each start of input %s is a first one, and does "
                "not continue where the run before it ended. Call checkpoint(dir)",
                stream.name,
            )
        for stream in (stream for stream in graph.inputs if stream.is_pushed):
            _log.warning(
                "No checkpoint location is set: when the program ends, the records of input %s are "
                "deleted, also those that were acknowledged. Call checkpoint(dir)",
                stream.name,
            )
        self._temporary = make_temporary_location()
        # For a process that ends without stopping the program.
        jvm: Any = sc._jvm
        jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
            jvm.java.io.File(self._temporary)
        )
        _log.info(
            "No checkpoint location is set: offsets, commits and journal are in %s and are deleted "
            "when the program or its SparkSession stops",
            self._temporary,
        )
        return self._temporary

    def effective(self, settings: StreamingSettings) -> StreamingSettings:
        """Return the effective settings."""
        if self._directory is not None:
            return settings
        # A location that is removed when the program stops needs no retention.
        return replace(settings, write_ahead_log=False, min_batches_to_retain=1)

    def remove_temporary(self) -> None:
        """Remove the temporary location."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _check_temporary_is_enough(
    master: str, graph: DStreamGraph, settings: StreamingSettings
) -> None:
    if not master.startswith("local"):
        raise ConfigError(
            f"no checkpoint location is set, and master {master} is a cluster",
            operation="start",
            hint="call checkpoint(dir) with a path that driver and executors share, or set "
            "spark.sql.streaming.checkpointLocation and queryName",
        )
    dependent = next((stream for stream in graph.inputs if stream.needs_location), None)
    if dependent is not None:
        raise ConfigError(
            f"no checkpoint location is set, and input {dependent.name!r} needs one: how far it "
            "has read its source would be lost when the process ends",
            operation="start",
            ids={"stream": dependent.name},
            hint="call checkpoint(dir)",
        )
    exactly_once = next((output for output in graph.outputs if output.exactly_once), None)
    if exactly_once is not None:
        raise ConfigError(
            f"no checkpoint location is set, and output {exactly_once.name!r} is exactly-once: "
            "after a restart nothing would tell which batches it has",
            operation="start",
            ids={"output": exactly_once.name},
            hint="call checkpoint(dir) with a directory that outlives the program",
        )
    if settings.write_ahead_log:
        raise ConfigError(
            f"no checkpoint location is set, and {WRITE_AHEAD_LOG} is true",
            operation="start",
            hint="call checkpoint(dir): received records are kept there",
        )


def make_temporary_location() -> str:
    """Create a new folder, and remove those of killed processes; return its path."""
    for path in _abandoned(tempfile.gettempdir()):
        _remove(path)
    return tempfile.mkdtemp(prefix=_PREFIX)


def _abandoned(parent: str) -> Iterator[str]:
    """Yield the locations of this user that may have lost their driver."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                # It is being removed, or its driver has not created the file yet.
                with suppress(OSError):
                    locked = os.lstat(os.path.join(entry.path, LOCK_NAME))
                    is_mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                    if is_mine and time.time() - locked.st_mtime > _STARTING_S:
                        yield entry.path


def _remove(path: str) -> None:
    lock = DriverLock(os.path.join(path, LOCK_NAME))
    try:
        lock.acquire()
    except (OSError, PenstockError):
        return  # it is in use, or being removed
    try:
        shutil.rmtree(path, ignore_errors=True)
        _log.info("Removed %s: its program was killed", path)
    finally:
        lock.release()

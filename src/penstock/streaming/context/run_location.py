"""The location of a run: the checkpoint location, or a temporary one.

    ssc.checkpoint(dir)                                     dir
    spark.sql.streaming.checkpointLocation, and queryName   <checkpointLocation>/<queryName>
    spark.sql.streaming.checkpointLocation                  <checkpointLocation>/<random UUID>
    neither                                                 a temporary folder

The first that applies counts, as for a query of Structured Streaming (ResolveWriteToStream).
"""

from __future__ import annotations

import logging
import shutil
import uuid
from dataclasses import replace
from typing import Any

from pyspark import SparkContext

from penstock.conf import WRITE_AHEAD_LOG, StreamingSettings
from penstock.errors import ConfigError
from penstock.streaming.context.temporary_location import make_temporary_location
from penstock.streaming.engine.graph import DStreamGraph

_log = logging.getLogger(__name__)


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

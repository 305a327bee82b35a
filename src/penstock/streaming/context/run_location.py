"""Where a run keeps offsets, commits and journal: the checkpoint location, or a temporary one."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

from penstock.conf import WRITE_AHEAD_LOG, StreamingSettings
from penstock.errors import ConfigError
from penstock.streaming.context.temporary_location import make_temporary_location
from penstock.streaming.engine.graph import DStreamGraph

__all__ = ["RunLocation"]

_log = logging.getLogger(__name__)


class RunLocation:
    """The location of one program.

    Args:
        directory: the checkpoint location that it was given; None for a temporary one, which goes
            with the process: what is in it has to survive neither that nor a power cut.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._temporary: str | None = None

    def open(self, master: str, graph: DStreamGraph, settings: StreamingSettings) -> str:
        """Return the path or URL.

        Raises:
            ConfigError: there is no checkpoint location, and this program cannot do without one.
        """
        if self._directory is not None:
            for stream in (stream for stream in graph.inputs if stream.is_volatile):
                _log.warning(
                    "Input %s holds its data in memory, and loses it when the process ends; use it "
                    "in tests only",
                    stream.name,
                )
            return self._directory
        _check_temporary_is_enough(master, graph, settings)
        self._temporary = make_temporary_location()
        _log.info(
            "There is no checkpoint location: offsets, commits and journal are in %s, and go when "
            "the program stops",
            self._temporary,
        )
        return self._temporary

    def in_force(self, settings: StreamingSettings) -> StreamingSettings:
        """Return the settings that count here."""
        if self._directory is not None:
            return settings
        # Nobody can go back in a location that is removed when the program stops.
        return replace(settings, write_ahead_log=False, min_batches_to_retain=1)

    def remove_temporary(self) -> None:
        """Remove what goes with the process."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _check_temporary_is_enough(
    master: str, graph: DStreamGraph, settings: StreamingSettings
) -> None:
    if not master.startswith("local"):
        raise ConfigError(
            f"there is no checkpoint location, and master {master} is a cluster",
            operation="start",
            hint="call checkpoint(dir) with a path that driver and executors share",
        )
    dependent = next((stream for stream in graph.inputs if stream.needs_location), None)
    if dependent is not None:
        raise ConfigError(
            f"there is no checkpoint location, and input {dependent.name!r} needs one: how far it "
            "has read its source would be forgotten when the process ends",
            operation="start",
            ids={"stream": dependent.name},
            hint="call checkpoint(dir)",
        )
    if settings.write_ahead_log:
        raise ConfigError(
            f"there is no checkpoint location, and {WRITE_AHEAD_LOG} is true",
            operation="start",
            hint="call checkpoint(dir): it is where received records are kept",
        )

"""CheckpointReader: finds the newest readable graph checkpoint.

Source: ``org.apache.spark.streaming.CheckpointReader``.
"""

from __future__ import annotations

import logging

from penstock.errors import CheckpointError
from penstock.storage import Storage
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import get_checkpoint_files
from penstock.streaming.recovery.location_storage import check_unpickled

_log = logging.getLogger(__name__)


class CheckpointReader:
    """Reads graph checkpoints of a checkpoint location."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage.private()

    def read(self, *, ignore_read_error: bool = False) -> Checkpoint | None:
        """Return the newest readable graph checkpoint, None if none exists.

        If one is damaged, the previous one is used, which gives the same results.

        Raises:
            CheckpointError: some exist and none can be read (its cause is the newest one's error);
                with ``ignore_read_error`` None is returned instead.
            ConfigError: other users could have written them.
        """
        names = [file.name for file in reversed(get_checkpoint_files(self._storage))]
        if not names:
            return None
        _log.info("Checkpoint files found: %s", ",".join(map(self._storage.uri, names)))
        newest_error: Exception | None = None
        for name in names:
            check_unpickled(self._storage.uri(name))
            try:
                return self._load(name)
            except Exception as error:  # unpickling raises any error of the program's modules
                _log.warning(
                    "Error reading checkpoint from file %s", self._storage.uri(name), exc_info=True
                )
                newest_error = newest_error or error
        if ignore_read_error:
            return None
        raise CheckpointError(
            f"Failed to read checkpoint from directory {self._storage.url}",
            operation="read graph checkpoint",
            path=self._storage.url,
            hint="the log names each file and its error; offsets and state are stored "
            "separately: StreamingContext.getOrCreate(dir, create, recover='program') "
            "rebuilds the graph from the program and continues from them",
        ) from newest_error

    def _load(self, name: str) -> Checkpoint:
        uri = self._storage.uri(name)
        _log.info("Attempting to load checkpoint from file %s", uri)
        checkpoint = Checkpoint.deserialize(self._storage.read(name))
        _log.info("Checkpoint successfully loaded from file %s", uri)
        _log.info("Checkpoint was generated at time %d ms", checkpoint.checkpoint_time_ms)
        return checkpoint

"""The sources of a recreated StreamingContext: a graph checkpoint and a SparkContext."""

from __future__ import annotations

import logging
import os

from pyspark import SparkConf, SparkContext

from penstock.conf import CHECKPOINT_FILE_MANAGER
from penstock.driver.spark import hadoop_location
from penstock.errors import CheckpointError
from penstock.storage import Storage, local_root
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import get_checkpoint_files
from penstock.streaming.recovery.location_storage import (
    OpenStorage,
    check_unpickled,
    load_file_manager,
    open_location,
)
from penstock.streaming.recovery.saved_conf import ConfPairs, restored_settings

_log = logging.getLogger(__name__)


# -- CheckpointReader: finds the newest readable graph checkpoint --
#
# Source: ``org.apache.spark.streaming.CheckpointReader``.


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


def find_checkpoint(directory: str) -> Checkpoint | None:
    """Return the newest readable graph checkpoint of a location, None if none exists.

    Raises:
        CheckpointError: some exist, and none can be read.
        ConfigError: the location cannot be used, or other users can write to it.
    """
    file_manager = _file_manager()
    if file_manager is None:
        directory = hadoop_location(directory)
        root = local_root(directory)
        if root is not None and not os.path.exists(root):
            return None  # opening would create it
    return CheckpointReader(open_location(directory, file_manager)).read()


def require_checkpoint(directory: str) -> Checkpoint:
    """Like ``find_checkpoint``, but raises CheckpointError instead of returning None."""
    checkpoint = find_checkpoint(directory)
    if checkpoint is None:
        raise CheckpointError(
            f"no graph checkpoint exists in directory {directory}",
            operation="recreate context",
            path=directory,
            hint="StreamingContext.getOrCreate(dir, create) creates the first one",
        )
    return checkpoint


def restore_spark_context(saved: ConfPairs) -> SparkContext:
    """Return the running SparkContext, or start one with the settings of the previous run."""
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    submitted = _submitted_settings()
    conf = SparkConf(loadDefaults=False).setAll(list(restored_settings(saved, submitted).items()))
    return SparkContext(conf=conf)


def _file_manager() -> OpenStorage | None:
    """Return what opens the location, as far as the settings are known before the SparkContext."""
    sc = SparkContext._active_spark_context
    settings = _submitted_settings() if sc is None else dict(sc.getConf().getAll())
    name = settings.get(CHECKPOINT_FILE_MANAGER)
    return None if name is None else load_file_manager(name)


def _submitted_settings() -> dict[str, str]:
    """Return the settings of ``spark-submit`` for this process; none in a plain Python process.

    In a plain process the JVM is not running yet, and starts with the restored settings, so that
    settings which take effect only when a JVM starts (memory, Java options) come back as well.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf(loadDefaults=True).getAll())

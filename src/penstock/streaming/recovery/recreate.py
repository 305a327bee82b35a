"""The sources of a recreated StreamingContext: a graph checkpoint and a SparkContext."""

from __future__ import annotations

import os

from pyspark import SparkConf, SparkContext

from penstock.conf import CHECKPOINT_FILE_MANAGER
from penstock.driver.spark import hadoop_location
from penstock.errors import CheckpointError
from penstock.storage import local_root
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.location_storage import (
    OpenStorage,
    load_file_manager,
    open_location,
)
from penstock.streaming.recovery.reader import CheckpointReader
from penstock.streaming.recovery.saved_conf import ConfPairs, restored_settings


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

"""What a StreamingContext is recreated from: the newest graph checkpoint and a SparkContext."""

from __future__ import annotations

import os

from pyspark import SparkConf, SparkContext

from penstock.errors import CheckpointError
from penstock.storage import local_root
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.private_files import open_location
from penstock.streaming.recovery.reader import CheckpointReader
from penstock.streaming.recovery.saved_conf import ConfPairs, restored_settings

__all__ = ["find_checkpoint", "require_checkpoint", "restore_spark_context"]


def find_checkpoint(directory: str) -> Checkpoint | None:
    """Return the newest graph checkpoint of a location that can be read, None when there is none.

    Raises:
        CheckpointError: there are some, and none can be read.
        ConfigError: the location cannot be used, or others can write it.
    """
    root = local_root(directory)
    if root is not None and not os.path.exists(root):
        return None  # opening would make it
    return CheckpointReader(open_location(directory)).read()


def require_checkpoint(directory: str) -> Checkpoint:
    """Return what ``find_checkpoint`` does; raises CheckpointError where it returns None, too."""
    checkpoint = find_checkpoint(directory)
    if checkpoint is None:
        raise CheckpointError(
            f"there is no graph checkpoint in directory {directory}",
            operation="recreate context",
            path=directory,
            hint="StreamingContext.getOrCreate(dir, create) makes the first one",
        )
    return checkpoint


def restore_spark_context(saved: ConfPairs) -> SparkContext:
    """Return the running SparkContext, or start one with the settings of the run before."""
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    submitted = _submitted_settings()
    conf = SparkConf(loadDefaults=False).setAll(list(restored_settings(saved, submitted).items()))
    return SparkContext(conf=conf)


def _submitted_settings() -> dict[str, str]:
    """Return what ``spark-submit`` started this process with; nothing for a plain Python process.

    There the JVM is not running yet, and starts with the restored settings, so that those which
    only count when a JVM starts (memory, Java options) come back as well.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf(loadDefaults=True).getAll())

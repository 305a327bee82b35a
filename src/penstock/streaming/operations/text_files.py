"""Batches as folders of text files, one folder a batch, named by its time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD

__all__ = ["batch_folder", "save_as_text_files"]


def batch_folder(prefix: str, suffix: str | None, time: datetime) -> str:
    """Return ``prefix-TIME_IN_MS[.suffix]``. Source: ``pyspark.streaming.util.rddToFileName``."""
    name = f"{prefix}-{round(time.timestamp() * 1000)}"
    return name if suffix is None else f"{name}.{suffix}"


def save_as_text_files(time: datetime, rdd: RDD[Any], *, prefix: str, suffix: str | None) -> None:
    """Write a batch's records, only once even if the batch runs several times.

    An existing complete folder belongs to the batch, from a run that was interrupted before its
    commit. A folder with Hadoop's folder of unfinished tasks is incomplete, and is written again.
    """
    path = batch_folder(prefix, suffix, time)
    try:
        rdd.saveAsTextFile(path)
    except Py4JJavaError as error:
        if "FileAlreadyExistsException" not in str(error):
            raise
        if _delete_unfinished(rdd, path):
            rdd.saveAsTextFile(path)


def _delete_unfinished(rdd: RDD[Any], folder: str) -> bool:
    """Delete the folder if it is incomplete; return whether it was."""
    sc = rdd.context
    assert sc._jvm is not None  # a running context has one
    path = sc._jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(sc._jsc.hadoopConfiguration())
    unfinished = bool(files.exists(sc._jvm.org.apache.hadoop.fs.Path(path, "_temporary")))
    if unfinished:
        files.delete(path, True)
    return unfinished

"""RDD checkpoints: RDDs written out by Spark, so that what is made of them has a short lineage.

They serve the run that wrote them and no other: a new run makes its RDDs from the journal.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext

from penstock.errors import ConfigError

__all__ = ["delete", "prepare"]

_FOLDER = "rdds"


def prepare(sc: SparkContext, location_url: str) -> None:
    """Have Spark write RDD checkpoints under the location; remove those of earlier runs.

    Raises:
        ConfigError: Spark cannot write there.
    """
    url = f"{location_url}/{_FOLDER}"
    try:
        _delete_path(sc, url)
        sc.setCheckpointDir(url)
    except Py4JJavaError as error:
        raise ConfigError(
            "Spark cannot write RDD checkpoints to the checkpoint location",
            operation="prepare RDD checkpoints",
            path=url,
            hint="windows with an inverse function and DStream.checkpoint need a location that "
            "Hadoop's file systems can write, such as a local path or s3a://",
        ) from error


def delete(rdd: RDD[Any]) -> None:
    """Delete the files of an RDD's checkpoint, if it was written."""
    path = rdd.getCheckpointFile()
    if path is not None:
        _delete_path(rdd.context, path)


def _delete_path(sc: SparkContext, url: str) -> None:
    assert sc._jvm is not None  # a running context has one
    path = sc._jvm.org.apache.hadoop.fs.Path(url)
    path.getFileSystem(sc._jsc.hadoopConfiguration()).delete(path, True)

"""The same program on both engines: durable lines of a socket in batches of 1 s, and one output."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from harness.spark import spark_context

__all__ = ["penstock_program", "pyspark_program"]


def penstock_program(checkpoint: str, port: int, output: Callable[[Any], None]) -> Any:
    """Return a context of penstock, not yet started; ``output`` is given its stream of lines."""
    from penstock.streaming import StreamingContext

    ssc = StreamingContext(spark_context("local[3]"), 1)
    ssc.checkpoint(checkpoint)
    output(ssc.socketTextStream("127.0.0.1", port))
    return ssc


def pyspark_program(checkpoint: str, port: int, output: Callable[[Any], None]) -> Any:
    """Return the same of pyspark.streaming with its write-ahead log, which is not fsynced."""
    warnings.simplefilter("ignore", FutureWarning)  # DStreams are deprecated
    from pyspark import StorageLevel
    from pyspark.streaming import StreamingContext

    settings = {"spark.streaming.receiver.writeAheadLog.enable": "true"}
    ssc = StreamingContext(spark_context("local[3]", settings), 1)
    ssc.checkpoint(checkpoint)
    # With a write-ahead log a second replica has no use, says Spark's guide.
    output(ssc.socketTextStream("127.0.0.1", port, StorageLevel.MEMORY_AND_DISK))
    return ssc

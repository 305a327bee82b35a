"""Programs without a checkpoint location that nobody stops: their session stops, or the process."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.streaming import StreamingContext
from tests.waiting import WAIT_S


def start() -> tuple[SparkSession, StreamingContext, Path]:
    """Return a session, a program that runs in it, and its temporary location."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    ssc = StreamingContext(spark.sparkContext, 0.2)
    ssc.queueStream([[1]] * 1000).foreachRDD(lambda rdd: rdd.count())
    ssc.start()
    return spark, ssc, Path(str(ssc._location._temporary))


def main() -> None:
    """Stop the session of a program; then end the process while another one runs."""
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    spark, ssc, path = start()
    assert (path / "metadata").exists()
    spark.stop()
    try:
        ssc.awaitTermination(WAIT_S)
    except PenstockError:
        print("stopped", path.exists())
    _, _, path = start()
    assert (path / "metadata").exists()
    print("ends", path, flush=True)


if __name__ == "__main__":
    main()

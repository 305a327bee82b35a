"""A program that stops its session while receivers run, and ends.

python stopped_session_program.py JOURNAL LOG
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from penstock.receivers import TailReceiver
from penstock.structured import start_receivers
from tests.driver_program import new_spark, say
from tests.waiting import eventually


def main(journal: str, log: str) -> None:
    new_spark()
    spark = SparkSession.builder.getOrCreate()
    receivers = start_receivers(spark, TailReceiver(log), journal, "s")
    eventually(lambda: receivers.status()[0].state == "started")
    spark.stop()
    eventually(lambda: receivers.status()[0].state == "stopped")
    say(receivers.status()[0].state, receivers.error)


if __name__ == "__main__":
    main(*sys.argv[1:])

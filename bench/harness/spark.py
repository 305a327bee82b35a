"""A Spark for benchmarks: quiet, on loopback, with this interpreter in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext

__all__ = ["spark_context"]


def spark_context(master: str, settings: Mapping[str, str] | None = None) -> SparkContext:
    """Return a new SparkContext. The JVM is this process's only one: use a fresh process each."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = SparkConf().setMaster(master).setAppName("penstock-bench")
    conf.set("spark.ui.enabled", "false")
    conf.set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.driver.memory", "4g")
    for name, value in (settings or {}).items():
        conf.set(name, value)
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    return context

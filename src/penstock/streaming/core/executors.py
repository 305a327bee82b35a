"""The location of tasks."""

from __future__ import annotations

from pyspark import SparkContext

__all__ = ["has_executors"]


def has_executors(sc: SparkContext) -> bool:
    """Whether tasks run in executors, which may be on other hosts than the driver."""
    master = str(sc.master)
    return not (master == "local" or master.startswith("local["))

"""An output that counts each batch and tells the thread that steps the program.

A module of its own, because pyspark.streaming pickles outputs: it takes this function by its name.
"""

from __future__ import annotations

import threading

from pyspark import RDD

__all__ = ["count", "wait_counted"]

_counted = threading.Semaphore(0)


def count(rdd: RDD[object]) -> None:
    """Count a batch, as an output of a program."""
    rdd.count()
    _counted.release()


def wait_counted(timeout_s: float) -> None:
    """Wait for one more batch.

    Raises:
        TimeoutError: none was counted in time.
    """
    if not _counted.acquire(timeout=timeout_s):
        raise TimeoutError(f"a batch took longer than {timeout_s:g} s")

"""Starts Spark's Python workers as pyspark.daemon does, from a process that has imported.

A worker of pyspark's own daemon imports what its tasks need by itself, which takes up to a second,
and collects garbage after every task: 60 ms, with as many objects as these modules have. This one
imports them once, and leaves them out of its workers' collections.
"""

import gc

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
import pytest  # noqa: F401
from pyspark.daemon import manager

import penstock.streaming  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()

"""Starts Spark's Python workers as pyspark.daemon does, from a process that has imported.

A worker of pyspark's own daemon imports what its tasks need by itself, which takes up to a second,
and collects garbage after every task: 60 ms, with as many objects as these modules have. This one
imports them once, and leaves them out of its workers' collections.

Over Unix sockets (``tests/jvm.py``), a worker without a task whose JVM ends cannot answer it any
more, and would print a traceback if it noticed before the daemon ended it.
"""

import gc
import socket

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
import pytest  # noqa: F401
from pyspark import daemon

import penstock.streaming  # noqa: F401

_work = daemon.worker


def _worker(connection: socket.socket, authenticated: bool) -> int:
    try:
        return _work(connection, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = _worker
    gc.collect()
    gc.freeze()
    daemon.manager()

"""Starts Spark's Python workers as pyspark.daemon does, from a process that has imported.

A worker of pyspark's own daemon imports what its tasks need by itself, which takes up to a second,
and collects garbage after every task: 60 ms, with as many objects as these modules have. This one
imports them once, and leaves them out of its workers' collections.

Over Unix sockets (``tests/jvm.py``), a worker without a task whose JVM ends cannot answer it any
more, and would print a traceback if it noticed before the daemon ended it.
"""

import gc
import socket
from importlib import import_module

from pyspark import daemon

_MODULES = ("pandas", "pyarrow", "pyspark.worker", "pytest", "penstock.streaming")
_work = daemon.worker


def _worker(connection: socket.socket, authenticated: bool) -> int:
    try:
        return _work(connection, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = _worker
    gc.disable()  # to look through what is imported, and stays, takes a sixth of the time
    for module in _MODULES:
        import_module(module)
    gc.freeze()
    gc.enable()
    daemon.manager()

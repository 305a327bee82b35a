"""Python workers of Spark, which run many tasks each."""

from __future__ import annotations

import gc
import sys

__all__ = ["freeze_imports"]

_is_frozen = False


def freeze_imports() -> None:
    """Leave what this worker has imported out of garbage collections; tasks begin with it.

    pyspark collects after each task, and the next one waits for that: some 40 ms of CPU time, in
    which only modules are looked at. Does nothing outside of a worker.
    """
    global _is_frozen
    if not _is_frozen and "pyspark.worker" in sys.modules:
        _is_frozen = True
        gc.freeze()

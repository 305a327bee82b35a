"""Python workers of Spark, which run many tasks each."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["freeze_imports", "use_this_python"]

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


def use_this_python(sc: SparkContext) -> None:
    """Set a local context's workers to this interpreter; PySpark takes the first python3 on PATH.

    ``PYSPARK_PYTHON`` decides where it is set.
    """
    if str(sc.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        sc.pythonExec = sys.executable

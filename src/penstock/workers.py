"""Python workers of Spark, which run many tasks each."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StreamingError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import SparkContext

_is_frozen = False
_Record = TypeVar("_Record")


def freeze_imports() -> None:
    """Leave what this worker has imported out of garbage collections; tasks begin with it.

    pyspark collects after each task, and the next one waits for that: some 40 ms of CPU time, in
    which only modules are looked at. Does nothing outside of a worker.
    """
    global _is_frozen
    if not _is_frozen and "pyspark.worker" in sys.modules:
        _is_frozen = True
        gc.freeze()


def whole_input(records: Iterable[_Record]) -> Iterator[_Record]:
    """Yield a task's records; raise where Spark cut its input off instead of ending it.

    When what comes before a Python worker fails (a shuffle file is lost, another worker is killed),
    the JVM closes the worker's input, and PySpark takes that for the end of the records: the task
    fails as well, but later, when the function has seen "all" of them. So a task that makes its
    results durable by itself has to read its records through this. Outside of a worker there is
    nothing to check.

    Raises:
        StreamingError: the input was cut off, or this PySpark does not let one tell.
    """
    yield from records
    source = _input_of_worker()
    # Whoever ended the records says after them that there are no more, and waits for the results.
    if source is not None and not source.peek(1):
        raise StreamingError(
            "Spark cut off the input of this task before its last record",
            operation="read input of task",
            hint="the reason is in Spark's log, and Spark tries the task again",
        )


def _input_of_worker() -> Any:
    """Return the file from which PySpark's worker reads, None outside of a worker's task."""
    pyspark = sys.modules.get("pyspark.taskcontext")
    if pyspark is None or pyspark.TaskContext.get() is None:
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code, known = frame.f_code, frame.f_locals
        is_main = code.co_name == "main" and os.path.basename(code.co_filename) == "worker.py"
        if is_main and "infile" in known:
            return known["infile"]
        frame = frame.f_back
    raise StreamingError(
        "this version of PySpark does not show whether a task has all of its records",
        operation="read input of task",
        hint="use a version of PySpark that docs/install.md calls supported",
    )


def use_this_python(sc: SparkContext) -> None:
    """Set a local context's workers to this interpreter; PySpark takes the first python3 on PATH.

    ``PYSPARK_PYTHON`` decides where it is set.
    """
    if str(sc.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        sc.pythonExec = sys.executable

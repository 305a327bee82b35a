"""Where receivers run: spread over the executors, each on the one with the fewest of them.

Spark sends a task of its own to any free slot, so several receivers may come to share an executor,
its cores and its network, while others have none. So their tasks say which executor they prefer.
It is a preference: when that one has no slot for 3 s (``spark.locality.wait``), or is gone, Spark
takes another.

Source: ``org.apache.spark.streaming.scheduler.ReceiverSchedulingPolicy``.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import RDD, SparkContext

from penstock.driver.executors import rdd_on_each

_PATIENCE_S = 10.0
"""How long a start waits for more executors after the first one."""
_LOOK_S = 0.1


class ReceiverPlacement:
    """Chooses an executor for each receiver of a program. Thread-safe.

    Args:
        live: returns the live executors.
        expected: how many are worth waiting for when the program starts.
    """

    def __init__(self, live: Callable[[], Sequence[str]], expected: int) -> None:
        self._live = live
        self._expected = expected
        self._lock = threading.Lock()
        self._chosen: dict[str, str] = {}
        self._patient_until_s = math.inf

    def choose(self, receiver: str, stopping: threading.Event) -> str | None:
        """Return the executor for a receiver, None when there are none to choose from.

        Waits for executors at the program's start, until ``stopping``; for the first one however
        long it takes, as no task can run before. A receiver that is started again is placed anew:
        its executor may be gone.
        """
        live = self._wait_for_executors(stopping)
        with self._lock:
            self._chosen.pop(receiver, None)
            if not live:
                return None
            held = Counter(self._chosen.values())
            chosen = self._chosen[receiver] = min(live, key=lambda executor: held[executor])
            return chosen

    def _wait_for_executors(self, stopping: threading.Event) -> Sequence[str]:
        live = self._live()
        while len(live) < self._expected and time.monotonic() < self._patient_until_s:
            if live:
                self._patient_until_s = min(self._patient_until_s, time.monotonic() + _PATIENCE_S)
            if stopping.wait(_LOOK_S):
                break
            live = self._live()
        return live


def placed_rdd(sc: SparkContext, value: Any, executor: str | None) -> RDD[Any]:
    """Return an RDD of one value, whose one task prefers that executor."""
    return sc.parallelize([value], 1) if executor is None else rdd_on_each(sc, value, [executor])

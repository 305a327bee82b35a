"""StateSpec: the function of mapWithState, and the parameters of its state.

Source: ``org.apache.spark.streaming.StateSpec``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pyspark import RDD, SparkContext

from penstock.errors import ConfigError, StateError
from penstock.streaming.core.transforms import batch_time, check_arguments, takes_time

__all__ = ["StateSpec"]


class StateSpec:
    """Configures ``mapWithState``: ``StateSpec.function(f).initialState(pairs).timeout(60)``.

    As in Spark, every method changes the spec and returns it.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise _refusal(f"{func!r} is not a function", "give f(key, value, state)")
        forms = "f(key, value, state) or f(time, key, value, state)"
        check_arguments(func, range(3, 5), "mapWithState", forms)
        self._func = func
        self._initial: RDD[Any] | list[tuple[Any, Any]] | None = None
        self._initial_lost = False
        self._partitions: int | None = None
        self._timeout_ms: int | None = None

    @staticmethod
    def function(mappingFunction: Callable[..., Any]) -> StateSpec:
        """Return a spec for ``f(key, value, state)``, or ``f(time, key, value, state)``.

        It is called for each record, in order; its result is a record of the resulting stream,
        unless it is None. For a key that times out, ``value`` is None.

        Raises:
            ConfigError: it is not a function.
        """
        return StateSpec(mappingFunction)

    def initialState(self, initial: RDD[Any] | Iterable[tuple[Any, Any]]) -> StateSpec:
        """Set the initial state, an RDD or an iterable of pairs; if keys are equal the last counts.

        It is loaded once, when the program is first started on its checkpoint location.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(initial, RDD):
            self._initial = initial
        elif isinstance(initial, Iterable) and not isinstance(initial, str | bytes):
            self._initial = list(initial)
        else:
            raise _refusal(
                f"initial state {initial!r:.200} is neither an RDD nor an iterable",
                "give pairs of key and state",
            )
        return self

    def numPartitions(self, numPartitions: int) -> StateSpec:
        """Set the number of partitions of the state; by default Spark's default parallelism.

        The number cannot change after the state was created.

        Raises:
            ConfigError: it is not a number of 1 or more.
        """
        if type(numPartitions) is not int or numPartitions < 1:
            raise _refusal(f"numPartitions is {numPartitions!r}", "give a number of 1 or more")
        self._partitions = numPartitions
        return self

    def timeout(self, idleDuration: float) -> StateSpec:
        """Remove a key's state after that many seconds of batch time without a record of the key.

        The function is called a last time then, with None for the value.

        Raises:
            ConfigError: it is not a positive number of seconds.
        """
        is_time = isinstance(idleDuration, int | float) and math.isfinite(idleDuration)
        if not is_time or idleDuration < 0.001:
            raise _refusal(f"timeout is {idleDuration!r}", "give seconds, at least 0.001")
        self._timeout_ms = round(idleDuration * 1000)
        return self

    # -- the engine's side --

    @property
    def partitions(self) -> int | None:
        """The number of partitions that the program requests."""
        return self._partitions

    @property
    def timeout_ms(self) -> int | None:
        """The time for which a key may be idle."""
        return self._timeout_ms

    def function_at(self, time_ms: int) -> Callable[[Any, Any, Any], Any]:
        """Return a batch's function of key, value and state."""
        if takes_time(self._func, rdds=3):
            return partial(self._func, batch_time(time_ms))
        return self._func

    def initial_rdd(self, sc: SparkContext) -> RDD[Any] | None:
        """Return the initial state.

        Raises:
            StateError: it was an RDD of an earlier run of the program.
        """
        if self._initial_lost:
            raise StateError(
                "the initial state was an RDD, which no checkpoint can hold",
                operation="load initial state",
                hint="start the program itself instead of its graph checkpoint, or give a list",
            )
        if self._initial is None or isinstance(self._initial, RDD):
            return self._initial
        return sc.parallelize(self._initial)

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self._initial, RDD):  # it belongs to one SparkContext
            return {**self.__dict__, "_initial": None, "_initial_lost": True}
        return self.__dict__


def _refusal(what: str, hint: str) -> ConfigError:
    return ConfigError(f"mapWithState: {what}", operation="mapWithState", hint=hint)

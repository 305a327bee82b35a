"""The graph of a program as bytes, with the user's functions by value (cloudpickle)."""

from __future__ import annotations

import io
import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import Accumulator, Broadcast
from pyspark.cloudpickle import CloudPickler

from penstock.errors import ConfigError
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.recovery.pickle_diagnostics import PickleDiagnosis, diagnose_pickling

if TYPE_CHECKING:
    from penstock.streaming.core.program import Graph

_HINT = (
    "create it inside the function, when it runs (use rdd.context or df.sparkSession);"
    " or rebuild the graph from the program, which pickles none: "
    "StreamingContext.getOrCreate(dir, create, recover='program')"
)


class PickledGraph:
    """A pickled graph."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def _graph(self) -> Any:
        return pickle.loads(self.data)[-1]

    def load(self) -> Any:
        """Return the graph, always the same one; it is not attached to a context yet.

        Raises:
            Exception: any error of unpickling.
        """
        return self._graph


def pickle_graph(graph: Graph) -> PickledGraph:
    """Pickle a graph.

    Raises:
        ConfigError: an object in it cannot be pickled; the error names operation and variable.
    """
    # Parents first: a stream that precedes its children is not nested in them, so that a long chain
    # of operations does not exhaust the stack.
    streams = list(graph.streams())[::-1]
    try:
        return PickledGraph(_dumps((streams, graph)))
    except Exception as error:
        diagnosis = diagnose_pickling(graph, _can_pickle)
        raise _refusal(diagnosis) from error


class _GraphPickler(CloudPickler):
    """Refuses objects that can be pickled, but are meaningless in another process."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Accumulator | Broadcast):
            raise pickle.PicklingError(f"{type(obj).__name__}s cannot be recovered")
        return super().reducer_override(obj)


class _PartPickler(_GraphPickler):
    """Pickles one stream without the streams that it refers to."""

    def persistent_id(self, obj: Any) -> Any:
        return id(obj) if isinstance(obj, BaseDStream) else None


def _dumps(value: object) -> bytes:
    buffer = io.BytesIO()
    _GraphPickler(buffer).dump(value)
    return buffer.getvalue()


def _can_pickle(value: object) -> bool:
    try:
        _PartPickler(io.BytesIO()).dump(value)
    except Exception:
        return False
    return True


def _refusal(diagnosis: PickleDiagnosis | None) -> ConfigError:
    if diagnosis is None:  # each part can be pickled, the whole cannot
        return ConfigError(
            "the graph cannot be pickled for its checkpoint", operation="start", hint=_HINT
        )
    return ConfigError(
        f"{diagnosis.operation} cannot be kept in the graph checkpoint: {diagnosis.variable} "
        f"is {diagnosis.kind}, which cannot be pickled",
        operation=diagnosis.operation,
        ids={"variable": diagnosis.variable},
        hint=_HINT,
    )

"""Checkpoint: a program's graph and settings, at a batch's time.

Invariant: nothing that changes while a program runs is in its graph only. The offsets of inputs,
the completed batches, rates and state have their own durable files, which a program that is rebuilt
from its code also finds. So a graph is pickled once, at start, and recovery from an older
checkpoint gives the same results as from the newest.

Source: ``org.apache.spark.streaming.Checkpoint``.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from penstock.errors import CheckpointError
from penstock.streaming.recovery.codec import MalformedCheckpointError, decode, encode
from penstock.streaming.recovery.pickling import PickledGraph
from penstock.streaming.recovery.saved_conf import ConfPairs

_log = logging.getLogger(__name__)
_PYTHON = ".".join(platform.python_version_tuple()[:2])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A graph with its settings.

    A restart uses ``graph`` and ``conf``. The other fields are informative, because Spark's class
    has them: ``framework`` is the application's name, ``pending_times`` are the batches that were
    planned and not done. Master and jars come back with the settings, the batch interval with the
    graph; the directory is the one where the file was found, and the logs determine which batches
    run again. Times and intervals are milliseconds.
    """

    master: str
    framework: str
    jars: tuple[str, ...]
    graph: PickledGraph
    checkpoint_time_ms: int
    checkpoint_dir: str
    checkpoint_interval_ms: int
    pending_times: tuple[int, ...]
    conf: ConfPairs

    def validate(self) -> None:
        """Check that all required fields exist.

        Raises:
            MalformedCheckpointError: one is missing.
        """
        for name in ("master", "framework", "graph", "checkpoint_time_ms"):
            if getattr(self, name) is None:
                raise MalformedCheckpointError(f"Checkpoint.{name} is missing")
        _log.info("Checkpoint for time %d ms validated", self.checkpoint_time_ms)

    def serialize(self, codec: str) -> bytes:
        """Return the content of this checkpoint's file."""
        plain = {name: getattr(self, name) for name in _FIELDS} | {"python": _PYTHON}
        return encode(codec, json.dumps(plain).encode() + b"\n" + self.graph.data)

    @staticmethod
    def deserialize(data: bytes) -> Checkpoint:
        """Return the checkpoint in a file's content, its graph unpickled and validated.

        Unpickling runs code that the content names: see penstock.storage.trust.

        Raises:
            MalformedCheckpointError: the content is damaged.
            CheckpointError: another version of Python wrote it.
            Exception: any error of unpickling, such as ImportError for a missing module.
        """
        line, _, pickled = decode(data).partition(b"\n")
        plain = json.loads(line)
        _check_python(plain.pop("python", None))
        graph = PickledGraph(pickled)
        checkpoint = _build(plain, graph)
        graph.load()
        checkpoint.validate()
        return checkpoint


_FIELDS = tuple(field.name for field in fields(Checkpoint) if field.name != "graph")


def _build(plain: Mapping[str, Any], graph: PickledGraph) -> Checkpoint:
    if set(plain) != set(_FIELDS):
        raise MalformedCheckpointError(f"its fields are {sorted(plain)}, not {sorted(_FIELDS)}")
    tuples = {
        "jars": tuple(plain["jars"]),
        "pending_times": tuple(plain["pending_times"]),
        "conf": tuple((key, value) for key, value in plain["conf"]),
    }
    return Checkpoint(**{**plain, **tuples, "graph": graph})


def _check_python(version: str | None) -> None:
    """Refuse functions that another Python compiled: its bytecode is different."""
    if version != _PYTHON:
        raise CheckpointError(
            f"Python {version} wrote it, and this is Python {_PYTHON}",
            operation="read graph checkpoint",
            hint="run the Python that wrote it, or rebuild the graph from the program: "
            "StreamingContext.getOrCreate(dir, create, recover='program')",
        )

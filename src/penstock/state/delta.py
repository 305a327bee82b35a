"""Deltas and packs: files with the changes and the output of batches.

A delta is the only file that a batch writes for a partition: its changes and the records that the
function returned are in one atomic file, so that state and output stay consistent when tasks run
again. Its footer names the layers below it, so one file leads to all of a partition's state. A pack
holds changes only.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import StateError
from penstock.state.layers import Layer
from penstock.state.state_file import StateFile, encode_file, open_file
from penstock.storage import Storage

__all__ = [
    "Changes",
    "Delta",
    "Entry",
    "Outputs",
    "encode_delta",
    "encode_pack",
    "open_changes",
    "open_delta",
    "read_changes",
    "read_outputs",
]

_SCHEMA = pa.schema(
    [
        pa.field("key", pa.large_binary(), nullable=False),
        pa.field("value", pa.large_binary()),  # null: removed
        pa.field("touched_ms", pa.int64(), nullable=False),
    ]
)
_OUTPUTS_IN_A_PICKLE = 1000


class Entry(NamedTuple):
    """The state of a key: pickled, with the time of the batch that touched it last."""

    value: bytes
    touched_ms: int


Changes = Mapping[bytes, Entry | None]
"""By the bytes of keys (penstock.state.keys); None: removed."""


@dataclass(frozen=True)
class Delta:
    """The footer of a delta.

    ``keys`` is the number of keys with state after it, ``layers`` are the layers that its changes
    apply to.
    """

    until_ms: int
    keys: int
    layers: tuple[Layer, ...]

    def to_facts(self) -> dict[str, Any]:
        """Return the form of the footer."""
        return dict(self.__dict__)

    @classmethod
    def from_file(cls, file: StateFile) -> Delta:
        """Return the footer of an open file."""
        facts = file.facts
        layers = tuple(Layer(*layer) for layer in facts["layers"])
        return cls(facts["until_ms"], facts["keys"], layers)


class Outputs:
    """The records that the function returned, pickled in groups of a thousand."""

    def __init__(self) -> None:
        self.count = 0
        self._pickles: list[bytes] = []
        self._waiting: list[Any] = []

    def add(self, record: Any) -> None:
        """Add a record.

        Raises:
            StateError: it cannot be pickled.
        """
        self.count += 1
        self._waiting.append(record)
        if len(self._waiting) == _OUTPUTS_IN_A_PICKLE:
            self._flush()

    def to_bytes(self) -> bytes:
        """Return all records; raises as ``add``."""
        if self._waiting:
            self._flush()
        return b"".join(self._pickles)

    def _flush(self) -> None:
        try:
            self._pickles.append(pickle.dumps(self._waiting, pickle.HIGHEST_PROTOCOL))
        except Exception as error:  # anything that a user's __reduce__ raises
            raise StateError(
                "a value that the function returned cannot be pickled",
                operation="mapWithState",
                hint="return plain values: numbers, text, tuples, lists, dicts",
            ) from error
        self._waiting = []


def encode_delta(delta: Delta, changes: Changes, outputs: Outputs, codec: str) -> bytes:
    """Return the bytes of a delta file; raises as ``Outputs.to_bytes``."""
    sections = {"changes": _encode_changes(changes), "outputs": outputs.to_bytes()}
    facts = {**delta.to_facts(), "changes": len(changes), "outputs": outputs.count}
    return encode_file("delta", facts, sections, codec)


def encode_pack(until_ms: int, changes: Changes, codec: str) -> tuple[bytes, int]:
    """Return the bytes of a pack file, and the size of its changes."""
    facts = {"until_ms": until_ms, "changes": len(changes)}
    packed = _encode_changes(changes)
    return encode_file("pack", facts, {"changes": packed}, codec), packed.size


def open_delta(storage: Storage, path: str) -> tuple[StateFile, Delta]:
    """Open a delta; raises as ``open_file``."""
    file = open_file(storage, path, "delta")
    return file, Delta.from_file(file)


def open_changes(storage: Storage, folder: str, name: str) -> StateFile:
    """Open a delta or pack to read its changes; raises as ``open_file``."""
    kind = "pack" if name.endswith(".pack") else "delta"
    return open_file(storage, f"{folder}/{name}", kind)


def read_changes(file: StateFile) -> Iterable[tuple[bytes, Entry | None]]:
    """Return a delta's or pack's changes, in the order of their keys.

    Raises:
        DamagedStateError: they were altered.
    """
    try:
        table = pa.ipc.open_stream(file.section("changes")).read_all()
        keys, values, touched = (table.column(name).to_pylist() for name in _SCHEMA.names)
    except (pa.ArrowException, OSError, KeyError) as error:
        file.damaged("its changes cannot be parsed", error)
    entries = (
        None if value is None else Entry(value, at)
        for value, at in zip(values, touched, strict=True)
    )
    return zip(keys, entries, strict=True)


def read_outputs(file: StateFile) -> Iterator[Any]:
    """Yield the records that the function returned in that batch.

    Raises:
        DamagedStateError: they were altered.
    """
    data = io.BytesIO(file.section("outputs"))
    size = data.getbuffer().nbytes
    while data.tell() < size:
        yield from pickle.load(data)


def _encode_changes(changes: Changes) -> pa.Buffer:
    # In the order of keys: neighbours in the file are neighbours in the database's pages.
    rows = sorted(changes.items(), key=lambda row: row[0])
    columns = [
        [key for key, _ in rows],
        [entry and entry.value for _, entry in rows],
        [entry.touched_ms if entry else 0 for _, entry in rows],
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        arrays = [pa.array(c, field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
        writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
    return sink.getvalue()

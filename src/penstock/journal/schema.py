"""What the records of a stream are: text, bytes, pickled objects or Arrow rows.

A RecordFormat turns user records into Arrow batches of the stream's physical schema and back. It
checks records where they are handed in, so that one bad record fails its own ``store`` and never
the block it would have shared with others.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError

__all__ = ["RecordFormat"]

_CONVERSION_ERRORS = (
    pa.ArrowException,
    UnicodeError,
    AttributeError,
    KeyError,
    TypeError,
    pickle.PicklingError,
)
_VALUE_TYPES = {"string": pa.string(), "binary": pa.binary(), "pickle": pa.binary()}


class RecordFormat:
    """The record type of one stream.

    Args:
        schema: ``"string"``, ``"binary"``, ``"pickle"``, or a ``pyarrow.Schema``.

    Raises:
        ConfigError: for any other schema.
    """

    def __init__(self, schema: str | pa.Schema = "string") -> None:
        if isinstance(schema, pa.Schema) and len(schema):
            self.kind = "arrow"
            self.arrow = schema.remove_metadata()
        elif isinstance(schema, str) and schema in _VALUE_TYPES:
            self.kind = schema
            self.arrow = pa.schema([pa.field("value", _VALUE_TYPES[schema], nullable=False)])
        else:
            raise ConfigError(
                f"{schema!r} is no record schema",
                operation="choose record schema",
                hint='give "string", "binary", "pickle" or a pyarrow.Schema with columns',
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RecordFormat)
            and self.kind == other.kind
            and self.arrow.equals(other.arrow)
        )

    def __hash__(self) -> int:
        return hash((self.kind, str(self.arrow)))

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.arrow)
        return self.kind if self.kind != "arrow" else f"arrow({columns})"

    def to_json(self) -> dict[str, str]:
        """Return the JSON form that ``from_json`` reads back; Arrow schemas as base64 IPC bytes."""
        if self.kind != "arrow":
            return {"kind": self.kind}
        encoded = base64.b64encode(self.arrow.serialize().to_pybytes()).decode()
        return {"kind": "arrow", "columns": repr(self), "ipc": encoded}

    @staticmethod
    def from_json(value: dict[str, str]) -> RecordFormat:
        """Return the format that ``to_json`` described."""
        if value["kind"] == "arrow":
            return RecordFormat(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["ipc"]))))
        return RecordFormat(value["kind"])

    def check_one(self, record: Any) -> tuple[Any, int]:
        """Check one record; return what to buffer for it (input of ``encode``) and its bytes.

        Raises:
            ConfigError: the record does not fit the schema.
        """
        try:
            if self.kind == "string" and isinstance(record, str):
                return record, len(record) if record.isascii() else len(record.encode())
            if self.kind == "binary" and isinstance(record, bytes | bytearray | memoryview):
                return bytes(record), len(record)
            if self.kind == "pickle":
                value = pickle.dumps(record, protocol=5)
                return value, len(value)
            if self.kind == "arrow":
                batch = pa.RecordBatch.from_pylist([record], schema=self.arrow)
                return batch, batch.nbytes
        except _CONVERSION_ERRORS as e:
            raise self._misfit(record) from e
        raise self._misfit(record)

    def encode_many(self, records: Iterable[Any]) -> pa.RecordBatch:
        """Return one batch of checked records.

        Raises:
            ConfigError: a record does not fit the schema; none of them was taken.
        """
        rows = list(records)
        try:
            if self.kind == "arrow":
                return pa.RecordBatch.from_pylist(rows, schema=self.arrow)
            if self.kind == "pickle":
                rows = [pickle.dumps(row, protocol=5) for row in rows]
            return self._values(rows)
        except _CONVERSION_ERRORS as e:
            raise self._misfit(rows) from e

    def conform(self, data: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Return the data as batches of exactly this schema, by zero-copy where it fits already.

        Raises:
            ConfigError: columns differ or hold nulls where the schema has none.
        """
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        try:
            if not table.schema.equals(self.arrow):
                table = table.select(self.arrow.names).cast(self.arrow)
            for field in self.arrow:
                if not field.nullable and table[field.name].null_count:
                    raise pa.ArrowInvalid(f"column {field.name!r} holds nulls")
        except _CONVERSION_ERRORS as e:
            raise self._misfit(table.schema) from e
        return table.to_batches()

    def encode(self, items: Sequence[Any]) -> pa.Table:
        """Return buffered items, in order: batches of this schema, and lists of checked records."""
        batches = [i if isinstance(i, pa.RecordBatch) else self._values(i) for i in items]
        return pa.Table.from_batches(batches, schema=self.arrow)

    def to_python(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch as Python values: str, bytes, the objects, or dicts."""
        if self.kind == "arrow":
            return list(batch.to_pylist())
        values = batch.column(0).to_pylist()
        if self.kind == "pickle":
            return [pickle.loads(value) for value in values]  # noqa: S301 (see docs: journal access)
        return list(values)

    def _values(self, values: list[Any]) -> pa.RecordBatch:
        if None in values:
            raise pa.ArrowInvalid("None is no record of this schema")
        return pa.record_batch([pa.array(values, self.arrow.field(0).type)], schema=self.arrow)

    def _misfit(self, what: Any) -> ConfigError:
        shown = repr(what)
        return ConfigError(
            f"record {shown[:120]}{'...' if len(shown) > 120 else ''} does not fit schema {self!r}",
            operation="store",
            hint='set the receiver\'s schema ("string", "binary", "pickle" or a pyarrow.Schema) '
            "to what it stores",
        )

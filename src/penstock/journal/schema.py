"""The kinds of a stream's records: text, bytes, pickled objects or Arrow rows.

A RecordFormat turns user records into Arrow batches of the stream's schema and back.

Invariant: accepted records can be written, and read back as Python values. Records are checked when
they are stored, so that a bad one fails its own ``store``, and never the block that it would share
with others, or the batch that would read it.
"""

from __future__ import annotations

import base64
import pickle
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError, UnreadableRecordError
from penstock.journal.block import BlockFooter, encode_block, read_block
from penstock.journal.python_values import find_unreadable, shown, temporal_columns
from penstock.journal.schema_text import VALUE_TYPES, parse_schema
from penstock.journal.spark_types import spark_schema

_ACCEPTED = {"string": (str,), "binary": (bytes, bytearray, memoryview)}
_SMALL_BATCH_ROWS = 1024


class RecordFormat:
    """The record type of one stream.

    ``arrow`` is the schema of the records, ``stored`` the same as Parquet returns it (for example
    it has no seconds: ``timestamp[s]`` comes back as ``timestamp[ms]``).

    Args:
        schema: ``"string"``, ``"binary"``, ``"pickle"``, or columns: as text, ``"id int64, name
            string"``, as the path of a file (penstock.journal.schema_file), or as a
            ``pyarrow.Schema`` (of which metadata is dropped). Records with columns are dicts: a
            missing column is null, and values are converted as pyarrow does (a finer time is cut to
            the column's unit).
        allow_pickle: whether records may be unpickled. This runs code that their writer chose, so
            the program decides it, and never a file.
        is_new: whether records are still to be received. Older versions stored columns that Spark
            cannot read; those that exist can be read otherwise.

    Raises:
        ConfigError: for any other schema, and for one that Parquet cannot hold or Spark not read.
    """

    def __init__(
        self,
        schema: str | pa.Schema = "string",
        *,
        allow_pickle: bool = True,
        is_new: bool = True,
    ) -> None:
        self._allow_pickle = allow_pickle
        schema = parse_schema(schema)
        if isinstance(schema, pa.Schema) and len(schema):
            self.kind = "arrow"
            self.arrow = schema.remove_metadata()
            self.stored = _stored_schema(self.arrow)
            if is_new:
                spark_schema(self.arrow)
        elif isinstance(schema, str) and schema in VALUE_TYPES:
            self.kind = schema
            self.arrow = pa.schema([pa.field("value", VALUE_TYPES[schema], nullable=False)])
            self.stored = self.arrow
        else:
            raise ConfigError(
                f"{schema!r} is not a record schema",
                operation="choose record schema",
                hint='give "string", "binary", "pickle", or columns: "id int64, name string"',
            )
        self._names = frozenset(self.arrow.names)
        self._temporal = temporal_columns(self.arrow)
        self._integers = [field.name for field in self.arrow if pa.types.is_integer(field.type)]
        self._is_plain = self.arrow.types == self.stored.types and all(
            _is_plain(column) for column in self.arrow.types
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RecordFormat)
            and self.kind == other.kind
            and self.arrow.equals(other.arrow)
        )

    def __hash__(self) -> int:
        return hash((self.kind, *self.arrow.names))

    def __repr__(self) -> str:
        columns = ", ".join(
            f"{field.name} {field.type}{'' if field.nullable else ' not null'}"
            for field in self.arrow
        )
        return self.kind if self.kind != "arrow" else f"arrow({columns})"

    def to_json(self) -> dict[str, str]:
        """Return the JSON form that ``from_json`` reads back; Arrow schemas as base64 IPC bytes."""
        if self.kind != "arrow":
            return {"kind": self.kind}
        encoded = base64.b64encode(self.arrow.serialize().to_pybytes()).decode()
        return {"kind": "arrow", "columns": repr(self), "ipc": encoded}

    @staticmethod
    def from_json(value: dict[str, str]) -> RecordFormat:
        """Return the format that ``to_json`` described; its records are not unpickled."""
        if value["kind"] == "arrow":
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["ipc"])))
            return RecordFormat(schema, is_new=False)
        return RecordFormat(value["kind"], allow_pickle=False)

    def check_one(self, record: Any) -> tuple[Any, int]:
        """Check one record; return its buffered form (an item of ``encode``) and its bytes.

        Raises:
            ConfigError: the record does not match the schema.
        """
        if self.kind == "arrow":
            batch = self.encode_many([record])
            return batch, batch.nbytes
        try:
            (value,) = self._check_values([record])
            return value, len(value if self.kind != "string" or value.isascii() else value.encode())
        except Exception as e:  # including errors of the record's own methods
            raise self._misfit(record) from e

    def encode_many(self, records: Iterable[Any]) -> pa.RecordBatch:
        """Return one batch of checked records.

        Raises:
            ConfigError: a record does not match the schema; none of them was accepted.
        """
        rows = list(records)
        try:
            if self.kind != "arrow":
                return self._values(self._check_values(rows))
            for row in rows:
                self._check_row(row)
            batch = pa.RecordBatch.from_pylist(rows, schema=self.arrow)
            self._check_writable(table := pa.Table.from_batches([batch]))
        except Exception as e:  # including errors of the records' own methods
            raise self._misfit(rows) from e
        self._check_readable(table)
        return batch

    def conform(self, data: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Return the data as batches of exactly this schema, without a copy if it matches already.

        Columns are matched by name; types are cast if no value changes.

        Raises:
            ConfigError: columns differ, cannot be cast, hold nulls where the schema has none, are
                not valid Arrow data (for example text that is not UTF-8), or hold a value that
                Python cannot represent (a date after the year 9999); then it names row, column and
                value.
        """
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        if sorted(table.schema.names) != sorted(self._names):
            raise self._misfit(table.schema)
        try:
            table.validate(full=True)
            if not table.schema.equals(self.arrow):
                table = table.select(self.arrow.names).cast(self.arrow)
            self._check_writable(table)
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise self._misfit(table.schema) from e
        self._check_readable(table)
        return list(table.to_batches())

    def encode(self, items: Sequence[Any]) -> pa.Table:
        """Return buffered items, in order: batches of this schema, and lists of checked values."""
        batches = [i if isinstance(i, pa.RecordBatch) else self._values(i) for i in items]
        table = pa.Table.from_batches(batches, schema=self.arrow)
        # Parquet is written chunk by chunk, which is slow for chunks of a few rows (measured:
        # 10,000 rows in 60 ms one by one, in 5 ms when joined).
        if table.num_rows < len(batches) * _SMALL_BATCH_ROWS:
            return table.combine_chunks()
        return table

    def to_python(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch as Python values: str, bytes, the objects, or dicts.

        Raises:
            ConfigError: they are pickles, and may not be unpickled.
            UnreadableRecordError: a record cannot be converted to a Python value; ``ids["row"]`` is
                the first such record.
        """
        if self.kind == "pickle" and not self._allow_pickle:
            raise pickles_refused()
        try:
            return self._to_values(batch)
        except MemoryError:
            raise  # it does not concern the records
        except Exception as error:
            raise self._first_unreadable(batch) from error

    def _to_values(self, batch: pa.RecordBatch) -> list[Any]:
        if self.kind == "arrow":
            return list(batch.to_pylist())
        values: list[Any] = batch.column(0).to_pylist()
        if self.kind == "pickle":
            return [pickle.loads(value) for value in values]
        return values

    def _first_unreadable(self, batch: pa.RecordBatch) -> UnreadableRecordError:
        """Return the error of the first record that fails by itself, with its first such column."""
        for row, name in product(range(batch.num_rows), batch.schema.names):
            value = batch.select([name]).slice(row, 1)
            try:
                self._to_values(value)
            except MemoryError:
                raise
            except Exception:
                return UnreadableRecordError(
                    f"column {name!r} holds {shown(value.column(0))}, which cannot be made a "
                    "Python value",
                    operation="read records",
                    ids={"column": name, "row": row},
                )
        return UnreadableRecordError("records cannot be made Python values", ids={"row": 0})

    def _check_values(self, records: list[Any]) -> list[Any]:
        """Return the stored form of records of a one-value schema: str or bytes."""
        if self.kind == "pickle":
            return [pickle.dumps(record, protocol=5) for record in records]
        for kind in set(map(type, records)):
            if not issubclass(kind, _ACCEPTED[self.kind]):
                raise TypeError(f"{kind.__name__} is not a {self.kind}")
        return list(map(bytes, records)) if self.kind == "binary" else records

    def _check_row(self, row: Any) -> None:
        """Refuse data that pyarrow would drop silently: unknown columns, fractions of integers."""
        if not isinstance(row, Mapping) or not row.keys() <= self._names:
            raise TypeError(f"{reprlib.repr(row)} is not a dict of these columns")
        for name in self._integers:
            if isinstance(value := row.get(name), float | Decimal):
                raise TypeError(f"column {name!r} takes whole numbers, not {value!r}")

    def _check_writable(self, table: pa.Table) -> None:
        for field in self.arrow:
            if not field.nullable and table[field.name].null_count:
                raise pa.ArrowInvalid(f"column {field.name!r} holds nulls")
        if not self._is_plain:
            # Within nested values, dictionaries and casts only Parquet's own checks are complete.
            encode_block(table, BlockFooter(0, table.num_rows))

    def _check_readable(self, table: pa.Table) -> None:
        if found := find_unreadable(table, self._temporal):
            raise ConfigError(
                f"row {found.row}: {found}",
                operation="store",
                ids={"column": found.column, "row": found.row},
                hint="Python's dates are of the years 1 to 9999, its times in whole microseconds: "
                "correct the value, or store it as text or as a number",
            )

    def _values(self, values: list[Any]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(values, self.arrow.field(0).type)], schema=self.arrow)

    def _misfit(self, what: Any) -> ConfigError:
        return ConfigError(
            f"{reprlib.repr(what)} does not match schema {self!r}",
            operation="store",
            hint='set the receiver\'s schema ("string", "binary", "pickle" or a pyarrow.Schema) '
            "to what it stores",
        )


def pickles_refused(**where: Any) -> ConfigError:
    """Return the error of a stream of pickles that may not be unpickled."""
    return ConfigError(
        "the stream holds pickled objects, and reading one runs code that its writer chose",
        operation="read pickles",
        hint="if you trust all users who can write to the journal, pass allow_pickle=True to "
        "journalStream (or to JournalStream.open); if the stream never held pickles, its "
        "stream.json was altered",
        **where,
    )


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as Parquet returns it; ConfigError if Parquet cannot store it."""
    try:
        _check_names(pa.struct(list(schema)))
        if any("fixed_size_list" in str(kind) for kind in schema.types) and _is_before_26():
            raise pa.ArrowInvalid("before pyarrow 26 a null in a list of fixed size is not read")
        # An array, also an empty one, has pyarrow import pandas.
        block = encode_block(pa.Table.from_batches([], schema), BlockFooter(0, 0))
        _, parquet = read_block(block.to_pybytes(), "")
        parquet.read().cast(schema)
        return parquet.schema_arrow.remove_metadata()
    except (pa.ArrowException, NotImplementedError, OSError, ValueError) as e:
        raise ConfigError(
            f"a journal cannot hold columns ({', '.join(map(str, schema))})",
            operation="choose record schema",
            hint="remove or change the column that the cause names",
        ) from e


def _check_names(kind: pa.DataType) -> None:
    """Raise ArrowInvalid where a struct's fields share a name: no reader can tell them apart."""
    names = [kind.field(i).name for i in range(kind.num_fields)]
    if pa.types.is_struct(kind) and len(set(names)) < len(names):
        raise pa.ArrowInvalid("two columns have the same name")
    for i in range(kind.num_fields):
        _check_names(kind.field(i).type)


def _is_before_26() -> bool:
    return int(pa.__version__.partition(".")[0]) < 26


def _is_plain(column: pa.DataType) -> bool:
    """Whether valid Arrow data of a type can always be written, regarding nested nulls."""
    if isinstance(column, pa.BaseExtensionType | pa.DictionaryType):
        return False
    if pa.types.is_map(column):
        return column.item_field.nullable and _is_plain(column.item_type)
    children = [column.field(i) for i in range(column.num_fields)]
    return all(child.nullable and _is_plain(child.type) for child in children)

"""A single record as bytes, and back: what a dead letter keeps of it.

string   its UTF-8
binary   itself
pickle   the pickle
arrow    an Arrow IPC stream of one row, which brings its schema with it
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.journal.schema import RecordFormat


def to_raw(record_format: RecordFormat, batch: pa.RecordBatch, row: int) -> bytes:
    """Return one record of a batch of that format as bytes."""
    if record_format.kind == "arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch.slice(row, 1))
        data: bytes = sink.getvalue().to_pybytes()
        return data
    value: bytes = batch.column(0).slice(row, 1).cast(pa.binary())[0].as_py()
    return value


def from_raw(record_format: RecordFormat, raws: Sequence[bytes]) -> pa.Table:
    """Return the records that ``to_raw`` made bytes of, in a format that holds such.

    Raises:
        ConfigError: they are not of that format.
    """
    try:
        if record_format.kind == "arrow":
            tables = [pa.ipc.open_stream(raw).read_all() for raw in raws]
            return pa.concat_tables([record_format.arrow.empty_table(), *tables])
        values = pa.array(raws, pa.binary()).cast(record_format.arrow.field(0).type)
        return pa.table([values], schema=record_format.arrow)
    except (pa.ArrowException, OSError) as e:
        raise ConfigError(
            f"raw records do not match schema {record_format!r}",
            operation="read raw records",
            hint="replay them into a stream with the schema of their source stream",
        ) from e

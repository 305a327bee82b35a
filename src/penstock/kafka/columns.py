"""Messages as columns, with the names and types of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.kafka.messages import Messages
from penstock.kafka.records import SOURCE_COLUMNS


def to_batch(messages: Messages, columns: Sequence[str]) -> pa.RecordBatch:
    """Return messages as rows of some of ``SOURCE_COLUMNS``."""
    cells = [_COLUMNS[name](messages).cast(SOURCE_COLUMNS[name]) for name in columns]
    return pa.RecordBatch.from_arrays(cells, names=list(columns))


def _headers(messages: Messages) -> pa.Array:
    of_each = messages.headers()
    ends = np.cumsum([0, *map(len, of_each)], dtype=np.int32)
    held = [pair for headers in of_each for pair in headers]
    names, values = [name for name, _ in held], [value for _, value in held]
    flat = [pa.array(names, pa.string()), pa.array(values, pa.binary())]
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(flat, ["key", "value"]))


_COLUMNS: dict[str, Callable[[Messages], pa.Array]] = {
    "key": Messages.keys,
    "value": Messages.values,
    "topic": Messages.topics,
    "partition": Messages.partitions,
    "offset": Messages.offsets,
    "timestamp": Messages.timestamps,
    "timestampType": Messages.timestamp_types,
    "headers": _headers,
}

"""A record of a topic, as programs get it, and its columns."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

YEARS_MS = range(-62_135_596_800_000, 253_402_300_800_000)
"""The years 1 to 9999, which Python has. Producers can write any timestamp; others are null."""


Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


class KafkaRecord(NamedTuple):
    """A record. ``key`` and ``value`` are bytes or None, unless the stream has decoders."""

    key: Any
    value: Any
    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """Milliseconds since the epoch; None where the broker has none."""
    headers: Headers


_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": pa.list_(_HEADER),
}
"""The columns that ``foreachBatch`` can have, with the names and types of Spark's Kafka source."""
SOURCE_COLUMNS: dict[str, pa.DataType] = {
    **{name: kind for name, kind in COLUMNS.items() if name != "headers"},
    "timestampType": pa.int32(),
    "headers": COLUMNS["headers"],
}
"""The columns of Spark's Kafka source, in its order. ``timestampType`` is 0 for the time of the
producer, 1 for that of the broker, and -1 where there is none."""

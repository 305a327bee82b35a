"""Records of topics as a receiver stores them: their values, or the columns asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from penstock.journal import RecordFormat
from penstock.kafka import COLUMNS
from penstock.kafka.records import YEARS_MS
from penstock.receivers.kafka.headers import headers_of

__all__ = ["to_batch"]

_VALUES = RecordFormat("binary").arrow


def to_batch(messages: Sequence[Message], columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return messages as rows of these columns; without any, as their values."""
    if columns is None:
        return pa.record_batch([[message.value() or b"" for message in messages]], schema=_VALUES)
    cells = [pa.array(map(_CELLS[name], messages), COLUMNS[name]) for name in columns]
    return pa.record_batch(cells, names=list(columns))


def _timestamp_us(message: Message) -> int | None:
    """Return a time that Python has; None for others, and for none."""
    kind, time_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE or time_ms not in YEARS_MS else 1000 * time_ms


def _headers(message: Message) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in headers_of(message)]


_CELLS: dict[str, Callable[[Message], Any]] = {
    "key": Message.key,
    "value": Message.value,
    "topic": Message.topic,
    "partition": Message.partition,
    "offset": Message.offset,
    "timestamp": _timestamp_us,
    "headers": _headers,
}

"""Values that Arrow and Parquet hold and Python has no object for. Pure.

Python's dates are of the years 1 to 9999, and its times of day in whole microseconds; Arrow's reach
further. Each reader that makes Python objects would fail at such a value, batch after batch, so it
is refused where it is stored.

No table of bounds is needed: the least and the greatest value of a column are converted as PyArrow
converts them, which also knows what a time zone does to the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_FEW = 4
"""So many values are converted in less time than their bounds are found."""
_SHOWN_CHARS = 200


class UnreadableValue(NamedTuple):
    """A value that Python has no object for, and where it is."""

    row: int
    column: str
    value: str

    def __str__(self) -> str:
        return f"column {self.column!r} holds {self.value}, which Python has no object for"


def temporal_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that may hold such values: dates, times and durations, also nested."""
    return tuple(field.name for field in schema if _is_temporal(field.type))


def find_unreadable(table: pa.Table, columns: Iterable[str]) -> UnreadableValue | None:
    """Return the first such value of the columns of a valid table, None if there is none."""
    for name in columns:
        if (row := _first_unreadable(table[name])) is not None:
            return UnreadableValue(row, name, shown(table[name].slice(row, 1).combine_chunks()))
    return None


def shown(value: pa.Array) -> str:
    """Return a value as Arrow writes it, on one line; of a nested one, what Python cannot hold.

    ``value`` is an array of one.
    """
    for parts in _temporal_values(value):
        if (at := _first_unreadable(pa.chunked_array([parts]))) is not None:
            value = parts.slice(at, 1)
            break
    text = " ".join(str(value.to_string()).split())
    return text.removeprefix("[ ").removesuffix(" ]")[:_SHOWN_CHARS]


def _first_unreadable(column: pa.ChunkedArray) -> int | None:
    if _are_readable(column):
        return None
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        if _are_readable(column.slice(start, middle - start)):
            start = middle
        else:
            end = middle
    return start


def _is_temporal(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_temporal(kind.storage_type)
    return kinds.is_temporal(kind) or any(
        _is_temporal(kind.field(i).type) for i in range(kind.num_fields)
    )


def _are_readable(column: pa.ChunkedArray) -> bool:
    try:
        for chunk in column.chunks:
            for values in _temporal_values(chunk):
                _convert_bounds(values)
    except MemoryError:
        raise
    except Exception:  # of Arrow, Python, pandas, or the time zone's library
        return False
    return True


def _temporal_values(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the dates, times and durations within an array, but for those beneath a null."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _temporal_values(array.storage)
    elif kinds.is_temporal(kind):
        yield array
    elif kinds.is_map(kind):  # Arrow flattens no maps, and ``items`` knows nothing of slices
        pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        yield from _temporal_values(array.cast(pa.list_(pairs)))
    elif kinds.is_struct(kind):
        for child in array.flatten():
            yield from _temporal_values(child)
    elif kinds.is_nested(kind):  # lists of all kinds
        yield from _temporal_values(array.flatten())


def _convert_bounds(values: pa.Array) -> None:
    """Raise whatever comes up if one of the values has no Python object."""
    kind = values.type
    if kinds.is_time(kind):
        values.validate(full=True)  # a time of 25 hours becomes 1 o'clock without a word
        values.cast(pa.time64("us"))  # and one of 1 ns becomes midnight
    elif len(values) <= _FEW:
        values.to_pylist()
    elif kinds.is_duration(kind):  # they have no min_max
        bounds = pc.min_max(values.view(pa.int64())).as_py()
        pa.array(bounds.values(), pa.int64()).view(kind).to_pylist()
    else:
        pc.min_max(values).as_py()

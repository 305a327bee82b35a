"""Values that PostgreSQL cannot hold: the batch fails and names one, or they are replaced. Pure.

    text that is not UTF-8, or has U+0000     U+FFFD for each such byte or character
    a date or time outside of its years       null

``spark.penstock.sinks.badValues`` decides. What a column of the user's table cannot hold (too long
a text, a number out of its range) is not replaced: the database says so, and the batch fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError

_YEARS = (1, 32_767)
"""The first and the last year of dates and times that Spark has and PostgreSQL takes."""
_DAY_US = 86_400_000_000
_ESCAPE = re.compile(r"\\(u0000|.)")
_MOST = 60


class BadValueError(Exception):
    """A task found a value that the sink cannot hold; its text says which, and in which row.

    Args:
        text: what it is.
        hint: what to do.
    """

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


_Found = tuple[pa.Array, pa.Array, str]
"""Which values of a column are bad, the column with others in their place, and what they are."""


class Fitting:
    """Makes rows fit, for one task: called with each batch of rows.

    Args:
        names: of the columns.
        nested: the positions of those that have JSON.
        replaces: whether a bad value is replaced.

    Raises:
        BadValueError: when called, a value is bad, and is not to be replaced.
    """

    def __init__(self, names: Sequence[str], nested: Sequence[int], *, replaces: bool) -> None:
        self._names = names
        self._nested = nested
        self._replaces = replaces
        self.replaced = 0
        """How many values were replaced."""
        self.first = ""
        """The first of them."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that the database holds."""
        columns = list(rows.columns)
        for position, column in enumerate(columns):
            for find in self._checks(position, column.type):
                bad, other, what = find(columns[position])
                if count := pc.sum(bad).as_py():
                    self._note(rows, position, pc.index(bad, True).as_py(), count, what)
                    columns[position] = other
        return pa.record_batch(columns, names=rows.schema.names)

    def _checks(self, position: int, kind: pa.DataType) -> list[Callable[[pa.Array], _Found]]:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return [_not_utf8, _nul, *([_nul_in_json] if position in self._nested else [])]
        is_time = pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
        return [_out_of_years] if is_time else []

    def _note(self, rows: pa.RecordBatch, position: int, row: int, count: int, what: str) -> None:
        text = (
            f"column {self._names[position]!r} holds {_shown(rows[position], row)}, {what}, in the "
            f"row {self._row(rows, row)}"
        )
        if not self._replaces:
            raise BadValueError(
                text,
                "change such values in the DataFrame, or set spark.penstock.sinks.badValues to "
                "replace: text gets U+FFFD, other values are null",
            )
        self.replaced += count
        self.first = self.first or text

    def _row(self, rows: pa.RecordBatch, row: int) -> str:
        shown = (
            f"{name}={_shown(column, row)}"
            for name, column in zip(self._names[:10], rows.columns, strict=False)
        )
        return ", ".join(shown)


def check_names(names: Iterable[str], *, tells_case: bool) -> None:
    """Check that columns have names of their own.

    Args:
        names: of the columns.
        tells_case: whether the sink tells ``a`` from ``A``.

    Raises:
        ConfigError: two are the same to the sink.
    """
    seen: dict[str, str] = {}
    for name in names:
        key = name if tells_case else name.casefold()
        if key in seen:
            raise ConfigError(
                f"two columns of the DataFrame are the same to the sink: {seen[key]!r}, {name!r}",
                operation="write batch",
                hint="give each column a name of its own: withColumnRenamed, or toDF",
            )
        seen[key] = name


def _out_of_years(column: pa.Array) -> _Found:
    first, last = _YEARS
    is_time = pa.types.is_timestamp(column.type)
    plain = column.cast(pa.timestamp("us") if is_time else pa.int32())
    number, unit = (plain.cast(pa.int64()), _DAY_US) if is_time else (plain, 1)
    begin, end = _days_before(first) * unit, _days_before(last + 1) * unit
    bad = pc.fill_null(pc.or_(pc.less(number, begin), pc.greater_equal(number, end)), False)
    null = pa.scalar(None, column.type)
    return bad, pc.if_else(bad, null, column), f"outside of the years {first} to {last}"


def _days_before(year: int) -> int:
    """Return the days from 1970 to the beginning of a year, in the calendar of Spark."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 - 719_162


def _not_utf8(column: pa.Array) -> _Found:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        plain = column.cast(pa.binary()).to_pylist()
        texts = [None if each is None else each.decode(errors="replace") for each in plain]
        bad = [a is not None and a.encode() != b for a, b in zip(texts, plain, strict=True)]
        return pa.array(bad), pa.array(texts, column.type), "which is not UTF-8"
    return pa.repeat(False, len(column)), column, ""


def _nul(column: pa.Array) -> _Found:
    bad = pc.fill_null(pc.match_substring(column, "\0"), False)
    return bad, pc.replace_substring(column, "\0", "\ufffd"), "with U+0000"


def _nul_in_json(column: pa.Array) -> _Found:
    """An escape of U+0000, not a text ``u0000`` behind an escaped backslash."""
    candidates = pc.fill_null(pc.match_substring(column, "\\u0000"), False)
    if not pc.any(candidates).as_py():
        return candidates, column, ""
    plain = column.to_pylist()
    texts = [each and _ESCAPE.sub(_without_nul, each) for each in plain]
    bad = pa.array([a != b for a, b in zip(plain, texts, strict=True)])
    return bad, pa.array(texts, column.type), "with U+0000"


def _without_nul(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape[1] == "u0000" else escape[0]


def _shown(column: pa.Array, row: int) -> str:
    """Return a value as text, escaped and cut; also one that Python has no object for."""
    one = column.slice(row, 1)
    if one.null_count:
        return "null"
    if pa.types.is_string(one.type) or pa.types.is_large_string(one.type):
        text = repr(one.cast(pa.binary())[0].as_py())[1:]
    elif pa.types.is_binary(one.type) or pa.types.is_large_binary(one.type):
        text = repr(one[0].as_py())
    elif pa.types.is_timestamp(one.type):
        text = str(one.cast(pa.timestamp("us")).cast(pa.string())[0].as_py())
    else:
        text = str(one.cast(pa.string())[0].as_py())
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."

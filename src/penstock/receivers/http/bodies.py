"""From a body's bytes to records, as the receiver's schema wants them. Pure.

schema      accepts                  a record is
"string"    text/plain               a line (see penstock.receivers.lines); JSON over several lines
                                     is one record
            NDJSON, JSON             the text of a line, or of an item of the array
"binary"    application/octet-stream the body
columns     NDJSON, JSON             an object, converted as penstock.receivers.http.columns says

``content_types`` says of other types, or of these, which of the four forms their bodies have. The
fourth one, the body as it is, is text for "string".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.journal.python_values import find_unreadable, temporal_columns
from penstock.receivers.http.answers import RefusedError
from penstock.receivers.http.columns import as_columns, missing_value, nullable, read_columns
from penstock.receivers.http.head import Kind, content_types
from penstock.receivers.http.json_text import (
    Lines,
    are_values,
    array_items,
    checked_lines,
    checked_value,
    first_no_object,
    is_one_value,
    likely_lines,
    read_arrow,
)
from penstock.receivers.http.misfits import describe_misfit
from penstock.receivers.http.record_limits import (
    MAX_JSON_RECORD_BYTES,
    check_columns,
    check_lines,
    widest_row,
)
from penstock.receivers.lines import BYTE_ORDER_MARK, LINES_SCHEMA, split_lines

Parsed: TypeAlias = str | bytes | pa.RecordBatch | pa.Table


class BodyParser:
    """Parses bodies for one schema. Thread-safe.

    Args:
        schema: of the records.
        cuts_times: whether times finer than their column are cut, or refused.
        given_types: see ``content_types``.

    Raises:
        ConfigError: no body can be parsed into the schema.
    """

    def __init__(
        self,
        schema: str | pa.Schema,
        *,
        cuts_times: bool = True,
        given_types: Mapping[str, str] | None = None,
    ) -> None:
        self._columns = self._exact = pa.schema([])
        self._cuts_times = cuts_times
        self._temporal: tuple[str, ...] = ()
        self._row_bytes = 0
        if isinstance(schema, pa.Schema) and len(schema):
            # Nulls are let in first, so that one can be told from other misfits.
            self._exact, self._columns = schema, _check_columns(nullable(schema))
            self._row_bytes = widest_row(self._columns)
            self._temporal = temporal_columns(self._columns)
            self._parsers: dict[Kind, Callable[[bytes], Parsed]] = {
                "ndjson": self._columns_of_lines,
                "json": self._columns_of_array,
            }
        elif schema == "string":
            self._parsers = {
                "ndjson": _json_lines,
                "text": _text_lines,
                "json": _json_array,
                "binary": _whole_text,
            }
        elif schema == "binary":
            self._parsers = {"binary": bytes}
        else:
            raise ConfigError(
                f"HTTP bodies cannot be records of schema {schema!r}",
                operation="set up HTTP receiver",
                hint='give "string", "binary", or columns: "page string, ms int64"',
            )
        alone = [kind for kind in self._parsers if schema == "binary" or kind != "binary"]
        self.types = content_types(given_types or {}, self._parsers, alone)

    def parse(self, kind: Kind, body: bytes) -> Parsed:
        """Return the records, at least one.

        Raises:
            RefusedError: 400 with the line or index of the first bad record, 413 for too many.
        """
        parser = self._parsers[kind]
        if parser is not bytes:
            body = body.removeprefix(BYTE_ORDER_MARK)
        if not body:
            raise RefusedError(400, "the body is empty")
        return parser(body)

    def _columns_of_lines(self, body: bytes) -> pa.Table:
        check_lines(body, json=True)
        check_columns(body, self._row_bytes)
        if (likely := likely_lines(body)) is not None and (table := self._read(likely)) is not None:
            return table
        lines = checked_lines(body)
        try:
            return self._read_checked(lines)
        except _BadRowError as e:
            line = lines.number(e.index)
            raise RefusedError(400, f"line {line}: {e.reason}", line=line) from e

    def _columns_of_array(self, body: bytes) -> pa.Table:
        # A newline in JSON text is space: within strings it is escaped.
        check_columns(body, self._row_bytes)
        items = [item.replace("\n", " ").encode() for item in array_items(body)]
        try:
            return self._read_checked(Lines(b"\n".join([*items, b""]), len(items)))
        except _BadRowError as e:
            raise RefusedError(400, f"item {e.index}: {e.reason}", index=e.index) from e

    def _read_checked(self, lines: Lines) -> pa.Table:
        """Return the columns of lines that are JSON; _BadRowError names the first that misfits."""
        _check_any(lines.total)
        if (index := first_no_object(lines.text)) is not None:
            raise _BadRowError(index, "it is not an object")
        table = self._read(lines)
        if table is None:
            raise self._first_bad_row(lines.text)
        return table

    def _read(self, lines: Lines) -> pa.Table | None:
        """Return the columns of lines that each are an object; None when one does not fit."""
        try:
            table = self._table(lines.text, self._columns, "error")
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines.total or self._flaw(table):
            return None
        return table if self._exact.equals(self._columns) else as_columns(table, self._exact)

    def _table(self, text: bytes, columns: pa.Schema, unexpected: str) -> pa.Table:
        return read_columns(text, columns, unexpected, cut=self._cuts_times)

    def _first_bad_row(self, text: bytes) -> _BadRowError:
        """Return the first row that does not fit, by halving what may hold it."""
        rows = text.split(b"\n")[:-1]
        start, end = 0, len(rows)
        while end - start > 1:
            middle = (start + end) // 2
            if self._misfit(rows[start:middle]):
                end = middle
            else:
                start = middle
        return _BadRowError(start, self._misfit(rows[start:end]))

    def _misfit(self, rows: list[bytes]) -> str:
        """Return why the rows do not fit the columns, an empty text when they do."""
        try:
            table = self._table(b"\n".join([*rows, b""]), self._columns, "error")
        except pa.ArrowInvalid as e:
            reason = str(e).partition(" in row ")[0]
            if len(rows) > 1:
                return reason
            return describe_misfit(rows[0], self._columns, reason, self._table)
        return self._flaw(table)

    def _flaw(self, table: pa.Table) -> str:
        """Return why columns that were parsed are refused all the same, an empty text if not."""
        if missing := missing_value(table, self._exact):
            return f"column {missing!r} is missing or null"
        if found := find_unreadable(table, self._temporal):
            return str(found)
        for name in self._temporal:
            try:
                table[name].validate(full=True)  # pyarrow.json takes a date64 within a day
            except pa.ArrowInvalid as e:
                return f"column {name!r}: {str(e).rpartition('Invalid: ')[2]}"
        return ""


class _BadRowError(Exception):
    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


def _json_lines(body: bytes) -> Parsed:
    if body.find(b"\n", 0, -1) < 0:
        if len(body) > MAX_JSON_RECORD_BYTES:
            check_lines(body, json=True)
        return checked_value(body)
    check_lines(body, json=True)
    lines = likely_lines(body)
    if lines is None or not are_values(lines):
        lines = checked_lines(body)
    _check_any(lines.total)
    return split_lines(lines.text)


def _json_array(body: bytes) -> Parsed:
    items = array_items(body)
    _check_any(len(items))
    if len(items) == 1:
        return items[0]
    return pa.record_batch([pa.array(items)], schema=LINES_SCHEMA)


def _text_lines(body: bytes) -> Parsed:
    if not body.endswith(b"\n"):
        body += b"\n"
    if body.find(b"\n") == len(body) - 1:
        # One line alone, the way of most requests: as split_lines would give it.
        return body[: -2 if body.endswith(b"\r\n") else -1].decode(errors="replace")
    check_lines(body, json=False)
    if is_one_value(body):
        return checked_value(body)
    return split_lines(body)


def _whole_text(body: bytes) -> Parsed:
    return body.decode(errors="replace")


def _check_any(count: int) -> None:
    if count == 0:
        raise RefusedError(400, "the body holds no records")


def _check_columns(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns JSON can be converted to; ConfigError for another."""
    try:
        read_arrow(b"{}\n", schema, "error")
    except (pa.ArrowException, ValueError) as e:
        raise ConfigError(
            f"JSON cannot be converted to columns ({', '.join(map(str, schema))})",
            operation="set up HTTP receiver",
            hint="remove or change the column that the cause names",
        ) from e
    return schema

"""A record schema as text or as a file, as commands and programs write it."""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.journal.schema_file import is_schema_file, read_schema_file
from penstock.journal.type_names import arrow_type

VALUE_TYPES = {"string": pa.string(), "binary": pa.binary(), "pickle": pa.binary()}
"""Kinds of records that are one value each: the type of their only column, ``value``."""

_COMMA = re.compile(r",(?![^\[(]*[\])])")
"""One between columns: not between the parameters of a type."""
_COLUMN = re.compile(r"\s*(\S+)\s+(\S.*?)(\s+not\s+null)?\s*", re.IGNORECASE)


def parse_schema(schema: str | pa.Schema) -> str | pa.Schema:
    """Return the name of one of VALUE_TYPES, or columns.

    Text is ``id int64 not null, at timestamp[us, UTC]``, or the path of a file with the columns
    (``read_schema_file``). A ``pyarrow.Schema`` is returned as it is.

    Raises:
        ConfigError: a column is not a name and the name of one of Arrow's types, or the file cannot
            be read.
    """
    if not isinstance(schema, str) or schema in VALUE_TYPES:
        return schema
    if is_schema_file(schema):
        return read_schema_file(schema)
    try:
        return pa.schema([_field(column) for column in _COMMA.split(schema)])
    except ValueError as e:
        raise ConfigError(
            f"{schema!r} is not a record schema",
            operation="read schema",
            hint="give string, binary, columns with Arrow's types such as 'id int64 not null, at "
            "timestamp[us, UTC]', or a file (.json, .avsc or .arrow)",
        ) from e


def _field(text: str) -> pa.Field:
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text.strip()!r} is not a name and a type")
    name, kind, required = found.groups()
    return pa.field(name, arrow_type(kind), nullable=required is None)

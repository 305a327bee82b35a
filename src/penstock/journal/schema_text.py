"""A record schema as text, as commands and programs write it."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import ConfigError

__all__ = ["VALUE_TYPES", "parse_schema"]

VALUE_TYPES = {"string": pa.string(), "binary": pa.binary(), "pickle": pa.binary()}
"""Kinds of records that are one value each: the type of their only column, ``value``."""


def parse_schema(schema: str | pa.Schema) -> str | pa.Schema:
    """Return the name of one of VALUE_TYPES, or the columns in ``id int64, name string``.

    A ``pyarrow.Schema`` is returned as it is.

    Raises:
        ConfigError: a column is not a name and the name of one of Arrow's types.
    """
    if not isinstance(schema, str) or schema in VALUE_TYPES:
        return schema
    columns = [column.split() for column in schema.split(",")]
    try:
        return pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in columns])
    except ValueError as e:
        raise ConfigError(
            f"{schema!r} is not a record schema",
            operation="read schema",
            hint="give string, binary, or columns with Arrow's types: 'id int64, at timestamp[ms]'",
        ) from e

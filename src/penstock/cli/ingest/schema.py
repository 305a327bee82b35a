"""A record schema as text, for the command line."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import ConfigError

__all__ = ["parse_schema"]


def parse_schema(text: str) -> str | pa.Schema:
    """Return ``string``, ``binary``, or the columns in ``id int64, name string``.

    Raises:
        ConfigError: a column is not a name and the name of one of Arrow's types.
    """
    if text in ("string", "binary"):
        return text
    columns = [column.split() for column in text.split(",")]
    try:
        return pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in columns])
    except ValueError as e:
        raise ConfigError(
            f"{text!r} is not a schema",
            operation="read schema",
            hint="give string, binary, or columns with Arrow's types: 'id int64, name string'",
        ) from e

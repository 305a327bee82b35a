"""The names of Arrow's types, as a schema's text has them. Pure."""

from __future__ import annotations

import re

import pyarrow as pa

_INSTANT = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?([^\s\]]+)\s*\]")
_DECIMAL = re.compile(r"decimal128\((\d+),\s*(\d+)\)")


def arrow_type(name: str) -> pa.DataType:
    """Return a type by its name: ``int64``, ``timestamp[us, UTC]``, ``decimal128(10, 2)``.

    Raises:
        ValueError: there is no such type.
    """
    if found := _INSTANT.fullmatch(name):
        return pa.timestamp(*found.groups())
    if found := _DECIMAL.fullmatch(name):
        return pa.decimal128(*map(int, found.groups()))
    return pa.type_for_alias(name)

"""The entries that a change appends to the logs. Pure: parsed entries in, bytes out.

They are the newest batch's own form, so the Spark that runs the query can read them: its versions
and settings, and every field that this release does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.checkpoint.log_files import CommitFile, OffsetFile, SourceLine
from penstock.checkpoint.log_format import dump_json, encode_log

_NO_OFFSET = "-"


def encode_offsets(
    form: OffsetFile, sources: Sequence[SourceLine], changed: Mapping[str, Any]
) -> bytes:
    """Return an entry of the offset log: ``changed`` are fields of its metadata."""
    metadata = "" if form.metadata is None else dump_json({**form.metadata, **changed})
    return encode_log(form.version, [metadata, *map(_line, sources)])


def encode_commit(form: CommitFile, changed: Mapping[str, Any]) -> bytes:
    """Return an entry of the commit log: ``changed`` are fields of its metadata."""
    return encode_log(form.version, [dump_json({**form.metadata, **changed})])


def _line(source: SourceLine) -> str:
    offset = _NO_OFFSET if source.offset is None else source.offset
    return offset if source.name is None else f"{source.name}:{offset}"

"""Offsets of journals and of Kafka as a source's line in the offset log. Pure.

    {"clicks":{"r0-1":120,"r0-2":30}}

Stream (topic) -> writer (partition) -> end offset, exclusive. Keys are sorted and there are no
spaces, so equal offsets are equal lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.checkpoint.log_format import parse_json
from penstock.errors import ConfigError
from penstock.model import Offsets

__all__ = ["dump_offsets", "parse_offsets"]


def dump_offsets(streams: Mapping[str, Offsets]) -> str:
    """Return the line for the end offsets of streams; raises ConfigError when one is not valid."""
    _check(streams)
    plain = {stream: dict(offsets) for stream, offsets in streams.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parse_offsets(line: str) -> dict[str, dict[str, int]]:
    """Return the end offsets in a line, with any spacing; raises ConfigError for other text."""
    try:
        streams = parse_json(line)
    except ValueError as error:
        raise _refusal(f"{line!r} is not JSON") from error
    _check(streams)
    result: dict[str, dict[str, int]] = streams
    return result


def _check(streams: object) -> None:
    if not isinstance(streams, Mapping):
        raise _refusal(f"{streams!r} is not an object")
    for stream, offsets in streams.items():
        if not isinstance(stream, str) or not isinstance(offsets, Mapping):
            raise _refusal(f"{stream!r}: {offsets!r} is not a stream with its offsets")
        for partition, offset in offsets.items():
            if not isinstance(partition, str) or type(offset) is not int or offset < 0:
                raise _refusal(f"{partition!r}: {offset!r} is not a partition with its end offset")


def _refusal(what: str) -> ConfigError:
    return ConfigError(
        f"offsets are malformed: {what}",
        operation="read offsets",
        hint='offsets look like {"stream":{"writer":120}}, with whole numbers from 0 on',
    )

"""The options of ``format("penstock")``. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigError
from penstock.journal.retention.registration import StartingOffsets
from penstock.model import Offsets, check_name
from penstock.structured.options import (
    ADMISSION,
    REQUIRED,
    Option,
    one_of,
    parse_options,
    text,
    time_ms,
)

NAME = "penstock"

StreamOffsets = StartingOffsets | Offsets | int
"""``earliest``, ``latest``, an offset map, or a time in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of one query."""

    journal: str
    stream: str
    consumer: str | None
    starting: StreamOffsets
    ending: StreamOffsets
    ranges: bool
    """Whether batches carry ranges instead of records."""
    given: Mapping[str, str]
    """All that were given."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> JournalOptions:
        """Return the options; raises ConfigError as ``parse_options``."""
        values = parse_options(NAME, JOURNAL_OPTIONS, given)
        stream = values["stream"]
        return JournalOptions(
            values["journal"],
            stream,
            values["consumer"],
            _bound("starting", values, given, stream),
            _bound("ending", values, given, stream),
            values["content"] == "ranges",
            dict(given),
        )


def _name(name: str, value: str) -> str:
    return check_name(name, value)


def _offsets(name: str, value: str) -> Any:
    """Return ``earliest``, ``latest`` or what the JSON holds."""
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return word
    try:
        found = json.loads(value)
        return {
            str(stream): {str(writer): _offset(end) for writer, end in offsets.items()}
            for stream, offsets in found.items()
        }
    except (ValueError, TypeError, AttributeError) as e:
        raise _refused(name, value) from e


def _offset(end: Any) -> int:
    if not isinstance(end, int) or isinstance(end, bool) or end < 0:
        raise ValueError(f"offset {end!r}")
    return end


def _bound(
    which: str, values: Mapping[str, Any], given: Mapping[str, str], stream: str
) -> StreamOffsets:
    by_time, by_offsets = f"{which}Timestamp", f"{which}Offsets"
    names = {name.lower() for name in given}
    if {by_time.lower(), by_offsets.lower()} <= names:
        raise ConfigError(
            f"options {by_time} and {by_offsets} are both given",
            operation="read options",
            ids={"option": by_time},
            hint="give one of the two",
        )
    time: int | None = values[by_time]
    return _of_stream(by_offsets, values[by_offsets], stream) if time is None else time


def _of_stream(name: str, found: Any, stream: str) -> StreamOffsets:
    if found in ("earliest", "latest"):
        return found  # type: ignore[no-any-return]
    if list(found) != [stream]:
        raise _refused(name, json.dumps(found), f", with stream {stream!r} and no other")
    offsets: Offsets = found[stream]
    return offsets


def _refused(name: str, value: str, more: str = "") -> ConfigError:
    return ConfigError(
        f"option {name} is {value!r}",
        operation="read options",
        ids={"option": name},
        hint='give earliest, latest, or offsets such as {"clicks": {"r0-00000000": 120}}' + more,
    )


JOURNAL_OPTIONS = (
    Option("journal", text, REQUIRED, "/data/journal"),
    Option("stream", _name, REQUIRED, "clicks"),
    Option("consumer", _name, only="stream"),
    Option("startingOffsets", _offsets, "earliest"),
    Option("startingTimestamp", time_ms),
    Option("endingOffsets", _offsets, "latest", only="batch"),
    Option("endingTimestamp", time_ms, only="batch"),
    Option("content", one_of("records", "ranges"), "records", only="stream"),
    *ADMISSION,
)

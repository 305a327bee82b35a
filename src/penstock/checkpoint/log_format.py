"""The text format that Spark's metadata logs share: a version line, then lines of JSON. Pure.

    v1
    {"nextBatchWatermarkMs":0}

The file has no newline at its end, and the JSON is compact, as json4s and Jackson write it. Reading
is as tolerant as in Spark (it accepts ``v01``, and drops text after the closing brace); the caller
validates. Spark's output is a function of the value, so a file in any other form has been altered:
the strict logs compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

_RESTORE_HINT = (
    "the file is torn or was altered; restore it from a backup, or start with a new checkpoint"
    " location (the journal still holds what no batch has committed)"
)
_UPGRADE_HINT = "read this checkpoint location with the release that wrote it, or a later one"

_ESCAPE = re.compile(r"\\u[0-9a-f]{4}|\\.")
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which has no bytes in UTF-8: JSON can hold it as an escape."""
_VERSION_LINE = re.compile(r"v([0-9]{1,10})")
_LINE_END = re.compile(r"\r\n|\n|\r")


class LogFile(NamedTuple):
    """A version, and the lines after it."""

    version: int
    lines: list[str]


class MalformedLogError(ValueError):
    """Bytes are not a log file of a known version; MetadataLog adds the path."""

    def __init__(self, message: str, hint: str = _RESTORE_HINT) -> None:
        super().__init__(message)
        self.hint = hint


def encode_log(version: int, lines: Sequence[str]) -> bytes:
    """Return the bytes of a log file."""
    return "\n".join([f"v{version}", *lines]).encode()


def parse_log(data: bytes) -> LogFile:
    """Return the version and the lines of a log file of any version.

    Raises MalformedLogError when it is empty, not UTF-8, or has no version; the messages are those
    of Spark's MetadataVersionUtil.
    """
    if not data:
        raise MalformedLogError("Incomplete log file: it is empty")
    try:
        version_line, *lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        raise MalformedLogError(f"Log file was malformed: it is not UTF-8 ({error})") from error
    found = _VERSION_LINE.fullmatch(version_line)
    if found is None or not 0 < int(found[1]) < 2**31:
        raise MalformedLogError(
            f"Log file was malformed: failed to read correct log version from {version_line}."
        )
    if lines and not lines[-1]:  # the end of the last line begins no new line
        lines.pop()
    return LogFile(int(found[1]), lines)


def check_version(version: int, supported_version: int) -> None:
    """Raise MalformedLogError when a file is of a newer version; the message is Spark's."""
    if version > supported_version:
        raise MalformedLogError(
            f"UnsupportedLogVersion: maximum supported log version is v{supported_version}, but"
            f" encountered v{version}. The log file was produced by a newer version of Spark and"
            " cannot be read by this version. Please upgrade.",
            hint=_UPGRADE_HINT,
        )


def decode_log(data: bytes, supported_version: int) -> list[str]:
    """Return the lines after the version line of a file that is no newer than that version.

    Raises MalformedLogError as ``parse_log`` and ``check_version``.
    """
    version, lines = parse_log(data)
    check_version(version, supported_version)
    return lines


def dump_json(value: Any) -> str:
    """Write JSON as Spark does: no spaces, keys in order of insertion, only controls escaped.

    Escaped as well are halves of characters (lone surrogates), of which Spark would write a "?".
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Jackson writes the digits of \u001F in upper case.
    text = _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04X}", text)


def parse_fields(line: str) -> dict[str, Any]:
    """Return the JSON object that a line begins with, with its fields in their order.

    What follows the object is ignored, as Spark ignores it. Raises MalformedLogError for anything
    else than an object.
    """
    try:
        value, _ = _DECODER.raw_decode(line.lstrip())
    except (ValueError, RecursionError) as error:
        raise MalformedLogError(f"Log file was malformed: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise MalformedLogError(f"Log file was malformed: {line} is not a JSON object")
    return value


def check_fields(fields: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raise MalformedLogError unless an object has exactly the fields ``names``, in that order.

    Spark uses a default for a missing field and drops an unknown one, but either is a sign of
    damage, or of a release with a changed meaning.
    """
    if tuple(fields) != names:
        raise MalformedLogError(
            f"Log file was malformed: {dump_json(dict(fields))} does not hold just the fields "
            f"{', '.join(names)}"
        )


def is_time_ms(value: object) -> bool:
    """Whether ``value`` is a time in Spark's form: milliseconds since the epoch, 64 bits."""
    return type(value) is int and 0 <= value < 2**63


def parse_json(text: str) -> Any:
    """Parse JSON strictly. Also raises ValueError for input that JSON forbids or leaves undefined.

    That is: a duplicate key (of which parsers silently take one), NaN and Infinity.
    """
    return _DECODER.decode(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"a key is given twice in {keys}")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)

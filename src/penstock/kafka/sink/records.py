"""What is sent, made of a program's records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from penstock.errors import ConfigError

__all__ = ["Encoder", "Headers", "Outgoing", "Tally"]

Headers = list[tuple[str, str | bytes | None]]
_TEXT_CHARS = 200


class Outgoing(NamedTuple):
    """A record for a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    """None is a tombstone."""
    headers: Headers | None = None


class Encoder:
    """Makes ``Outgoing`` of records.

    Args:
        topic: where they go.
        key: a function of a record; without it records have no key.
        value: a function of a record; without it the record is the value.
        headers: a function of a record that returns pairs of name and bytes, str or None.
    """

    def __init__(
        self,
        topic: str,
        key: Callable[[Any], Any] | None = None,
        value: Callable[[Any], Any] | None = None,
        headers: Callable[[Any], Iterable[tuple[str, Any]] | None] | None = None,
    ) -> None:
        self.topic = topic
        self._key = key
        self._value = value
        self._headers = headers

    def __call__(self, records: Iterable[Any]) -> Iterator[Outgoing]:
        """Yield what is sent for each record.

        Raises:
            ConfigError: a key, value or header is neither bytes nor str nor None.
        """
        topic, of_key, of_value, of_headers = self.topic, self._key, self._value, self._headers
        for record in records:
            key = None if of_key is None else of_key(record)
            if not (key is None or type(key) is bytes):
                key = _to_bytes("key", key, record)
            value = record if of_value is None else of_value(record)
            if not (value is None or type(value) is bytes):
                value = _to_bytes("value", value, record)
            headers = None if of_headers is None else _to_headers(of_headers(record), record)
            yield Outgoing(topic, key, value, headers)


class Tally:
    """The number of records, and a checksum of them that does not depend on their order."""

    __slots__ = ("checksum", "count")

    def __init__(self) -> None:
        self.count = 0
        self.checksum = 0

    def add(self, record: Outgoing) -> None:
        """Count a record."""
        topic, key, value, headers = record
        seed = crc32(topic.encode()) if key is None else crc32(key, len(key))
        found = seed ^ _NO_VALUE if value is None else crc32(value, seed)
        if headers:
            found ^= crc32(repr(headers).encode(), found)
        self.count += 1
        self.checksum = (self.checksum + found) & _MASK


_NO_VALUE = 0xFFFFFFFF
_MASK = (1 << 64) - 1


def _to_headers(given: Any, record: Any) -> Headers | None:
    if given is None:
        return None
    try:
        pairs = [(name, value) for name, value in given]
    except (TypeError, ValueError):
        pairs = [(None, None)]
    if not all(isinstance(name, str) for name, _ in pairs):
        raise _wrong("headers", given, record, "return pairs of name and bytes: [('name', b'1')]")
    return [(name, _to_bytes(f"header {name!r}", value, record)) for name, value in pairs]


def _to_bytes(what: str, given: Any, record: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    function = what.split()[0]
    raise _wrong(
        what, given, record, f"give a function that returns bytes or str: {function}=lambda r: ..."
    )


def _wrong(what: str, given: Any, record: Any, hint: str) -> ConfigError:
    kind = type(given).__name__
    return ConfigError(
        f"the {what} of a record is a {kind}, and Kafka takes bytes: {_short(given)}",
        operation="write to Kafka",
        ids={"record": f"{type(record).__name__} {_short(record)}"},
        hint=hint,
    )


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "its text cannot be formatted"
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}..."

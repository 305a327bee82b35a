"""What is sent, made of a program's records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, TypeAlias
from zlib import crc32

import pyarrow as pa

from penstock.errors import ConfigError

Column: TypeAlias = "Sequence[bytes | None] | pa.Array"
"""Keys or values: bytes objects, or an Arrow array of binary."""
Headers = list[tuple[str, bytes | None]]
_TEXT_CHARS = 200
_AT_ONCE = 1000
"""So many records are made before they are sent."""
_HEADERS_HINT = "return pairs of name (str without NUL) and bytes: [('name', b'1')], or a dict"
_AS_THEY_ARE = {bytes, type(None)}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records for a topic, one or more, in columns."""

    topic: str
    keys: Column | None
    """None if none has a key."""
    values: Column
    """None is a tombstone."""
    headers: Sequence[Headers | None] | None = None

    def __len__(self) -> int:
        """Return how many."""
        return len(self.values)

    def rows(self) -> Iterator[tuple[bytes | None, bytes | None, Headers | None]]:
        """Yield the key, value and headers of each."""
        keys = repeat(None) if self.keys is None else _plain(self.keys)
        headers = repeat(None) if self.headers is None else self.headers
        return zip(keys, _plain(self.values), headers, strict=False)


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
        """Yield what is sent for some records after the other.

        Raises:
            ConfigError: a key, value or header is neither bytes nor str nor None.
        """
        of_key, of_value, of_headers = self._key, self._value, self._headers
        records = iter(records)
        while some := list(islice(records, _AT_ONCE)):
            values = some if of_value is None else list(map(of_value, some))
            yield Outgoing(
                self.topic,
                None if of_key is None else _all_bytes("key", list(map(of_key, some)), some),
                _all_bytes("value", values, some),
                None if of_headers is None else [to_headers(of_headers(r), r) for r in some],
            )


class Tally:
    """The number of records, and a checksum of them that does not depend on their order."""

    __slots__ = ("checksum", "count")

    def __init__(self) -> None:
        self.count = 0
        self.checksum = 0

    def add(self, records: Outgoing) -> None:
        """Count records."""
        no_key, total = crc32(records.topic.encode()), 0
        for key, value, headers in records.rows():
            seed = no_key if key is None else crc32(key, no_key + len(key) + 1)
            found = seed ^ _NO_VALUE if value is None else crc32(value, seed)
            if headers:
                found ^= crc32(repr(headers).encode(), found)
            total += found * found  # CRCs are linear: their sum may stay when values are swapped
        self.count += len(records)
        self.checksum = (self.checksum + total) & _MASK


_NO_VALUE = 0xFFFFFFFF
_MASK = (1 << 64) - 1


def _plain(column: Column) -> Iterable[bytes | None]:
    return column.to_pylist() if isinstance(column, pa.Array) else column


def _all_bytes(what: str, given: list[Any], records: Sequence[Any]) -> list[bytes | None]:
    if set(map(type, given)) <= _AS_THEY_ARE:
        return given
    return [_to_bytes(what, *each) for each in zip(given, records, strict=True)]


def to_headers(given: Any, record: Any) -> Headers | None:
    """Return headers that a program gives, as a mapping or as pairs.

    Raises:
        ConfigError: they are something else, or Kafka's clients cannot send them.
    """
    if given is None:
        return None
    try:
        pairs = list(given.items() if isinstance(given, Mapping) else given)
    except TypeError:
        pairs = [None]
    if not all(isinstance(pair, (tuple, list)) and _is_header(*pair) for pair in pairs):
        raise _wrong("headers", given, record, _HEADERS_HINT)
    return [(name, _to_bytes(f"header {name!r}", value, record)) for name, value in pairs]


def _is_header(name: Any = None, *value: Any) -> bool:
    return len(value) == 1 and isinstance(name, str) and "\0" not in name and _is_utf8(name)


def _is_utf8(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which JSON may bring."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _to_bytes(what: str, given: Any, record: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str) and _is_utf8(given):
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
        f"the {what} of a record is a {kind}, and Kafka takes bytes or Unicode: {_short(given)}",
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

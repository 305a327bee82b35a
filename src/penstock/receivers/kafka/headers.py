"""Headers of a confluent-kafka message, of any bytes.

``Message.headers`` cannot return a name that is not UTF-8, which any producer can write: it fails,
or ends the process. So headers are read where librdkafka has them.

Invariant: the address is taken from a message's object only if its neighbours there are the topic,
the value and the key that the message returns.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_size_t, c_void_p

import confluent_kafka
from confluent_kafka import Message

from penstock.errors import ConfigError
from penstock.kafka.messages import Headers, read_headers

__all__ = ["headers_of"]

_ADDRESS = c_size_t


class _MessageObject(ctypes.Structure):
    """``Message`` of confluent_kafka.h, from 1.0 to 2.16 at least; addresses are integers."""

    _fields_ = (
        ("head", c_char * object.__basicsize__),
        ("topic", _ADDRESS),
        ("value", _ADDRESS),
        ("key", _ADDRESS),
        ("headers", _ADDRESS),  # none before Message.headers was called
        ("c_headers", c_void_p),
        ("error", _ADDRESS),
    )


def headers_of(message: Message) -> Headers:
    """Return a message's headers; bytes of a name that are not UTF-8 become U+FFFD.

    Raises:
        ConfigError: this release of confluent-kafka has another layout.
    """
    held = _MessageObject.from_address(id(message))
    expected = (message.topic(), message.value(), message.key(), None, None)
    found = (held.topic, held.value, held.key, held.headers, held.error)
    if not all(map(_is_at, expected, found)):
        raise ConfigError(
            f"headers cannot be read with confluent-kafka {confluent_kafka.__version__}",
            operation="read topics",
            hint="install confluent-kafka 2.16, or leave out the column headers",
        )
    return tuple(read_headers(c_void_p(held.c_headers))) if held.c_headers else ()


def _is_at(value: object, address: int) -> bool:
    return address == id(value) or (value is None and not address)

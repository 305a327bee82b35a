"""Writes a record whose header has a name of any bytes, as some producers do; Python's cannot."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_ssize_t, c_void_p

from confluent_kafka import cimpl

__all__ = ["produce_with_header"]

_PRODUCER = 0
_END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER = 0, 1, 3, 4, 7, 9
_COPY = 2


def produce_with_header(address: str, topic: str, value: bytes, name: bytes) -> None:
    """Write a record with a header to partition 0, and wait until it is durable."""
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = c_void_p
    text = ctypes.create_string_buffer(512)
    conf = c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", address.encode(), text, c_size_t(512))
    producer = c_void_p(library.rd_kafka_new(_PRODUCER, conf, text, c_size_t(512)))
    record = (
        *(c_int(_TOPIC), c_char_p(topic.encode()), c_int(_PARTITION), c_int32(0)),
        *(c_int(_VALUE), c_char_p(value), c_size_t(len(value)), c_int(_FLAGS), c_int(_COPY)),
        *(c_int(_HEADER), c_char_p(name), c_char_p(b"held"), c_ssize_t(4), c_int(_END)),
    )
    assert library.rd_kafka_producev(producer, *record) == 0
    assert library.rd_kafka_flush(producer, 30_000) == 0
    library.rd_kafka_destroy(producer)

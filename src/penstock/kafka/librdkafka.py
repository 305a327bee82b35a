"""The functions of librdkafka that reading uses, of the library that confluent-kafka loads.

Those that wait or call back release the GIL (``_waiting``). The others return at once and keep it:
some are called for each record.

Source: rdkafka.h, whose functions and public structs stay compatible.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any

from confluent_kafka import cimpl

__all__ = [
    "CONSUMER",
    "WITHOUT_CLOSE",
    "ErrorCallback",
    "MessageStruct",
    "assign",
    "conf_destroy",
    "conf_new",
    "conf_set",
    "conf_set_error_cb",
    "consume_batch_queue",
    "destroy",
    "header_get",
    "last_error",
    "message_destroy",
    "message_errstr",
    "message_headers",
    "message_timestamp",
    "new",
    "partitions_add",
    "partitions_destroy",
    "partitions_new",
    "partitions_set_offset",
    "poll_set_consumer",
    "query_watermark_offsets",
    "queue_destroy",
    "queue_get_consumer",
]

# A library's handle also finds the functions of the libraries that it is linked with.
_prompt, _waiting = ctypes.PyDLL(cimpl.__file__), ctypes.CDLL(cimpl.__file__)
CONSUMER = 1
WITHOUT_CLOSE = 8
ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)


class MessageStruct(ctypes.Structure):
    """``rd_kafka_message_t``; addresses are integers, and 0 is none."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_size_t),
        ("partition", c_int32),
        ("payload", c_size_t),
        ("len", c_size_t),
        ("key", c_size_t),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_size_t),
    )


def _function(library: ctypes.CDLL, name: str, returns: Any, *arguments: Any) -> Any:
    found = library[f"rd_kafka_{name}"]
    found.restype, found.argtypes = returns, arguments
    return found


conf_new = _function(_prompt, "conf_new", c_void_p)
conf_set = _function(_prompt, "conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
conf_set_error_cb = _function(_prompt, "conf_set_error_cb", None, c_void_p, ErrorCallback)
conf_destroy = _function(_prompt, "conf_destroy", None, c_void_p)

new = _function(_waiting, "new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
last_error = _function(_prompt, "last_error", c_int)
poll_set_consumer = _function(_waiting, "poll_set_consumer", c_int, c_void_p)
queue_get_consumer = _function(_waiting, "queue_get_consumer", c_void_p, c_void_p)
queue_destroy = _function(_waiting, "queue_destroy", None, c_void_p)
destroy = _function(_waiting, "destroy_flags", None, c_void_p, c_int)

partitions_new = _function(_prompt, "topic_partition_list_new", c_void_p, c_int)
partitions_add = _function(
    _prompt, "topic_partition_list_add", c_void_p, c_void_p, c_char_p, c_int32
)
partitions_set_offset = _function(
    _prompt, "topic_partition_list_set_offset", c_int, c_void_p, c_char_p, c_int32, c_int64
)
partitions_destroy = _function(_prompt, "topic_partition_list_destroy", None, c_void_p)
query_watermark_offsets = _function(
    _waiting,
    "query_watermark_offsets",
    *(c_int, c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int),
)
assign = _function(_waiting, "assign", c_int, c_void_p, c_void_p)

consume_batch_queue = _function(
    _waiting, "consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t
)
message_destroy = _function(_prompt, "message_destroy", None, c_void_p)
message_errstr = _function(_prompt, "message_errstr", c_char_p, c_void_p)
message_timestamp = _function(_prompt, "message_timestamp", c_int64, c_void_p, c_void_p)
message_headers = _function(_prompt, "message_headers", c_int, c_void_p, c_void_p)
header_get = _function(
    _prompt,
    "header_get_all",
    c_int,
    c_void_p,
    c_size_t,
    POINTER(c_char_p),
    POINTER(c_void_p),
    POINTER(c_size_t),
)

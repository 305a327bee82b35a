"""The functions of librdkafka that penstock uses, of the library that confluent-kafka loads.

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
    "COPY",
    "FLAGS",
    "HEADER",
    "KEY",
    "NOT_SENT",
    "PRODUCER",
    "TOPIC",
    "VALUE",
    "WITHOUT_CLOSE",
    "DeliveryCallback",
    "ErrorCallback",
    "FieldStruct",
    "MessageStruct",
    "MetadataStruct",
    "PartitionStruct",
    "RefreshCallback",
    "abort_transaction",
    "assign",
    "begin_transaction",
    "commit_transaction",
    "conf_destroy",
    "conf_enable_sasl_queue",
    "conf_new",
    "conf_set",
    "conf_set_dr_msg_cb",
    "conf_set_error_cb",
    "conf_set_refresh_cb",
    "consume_batch_queue",
    "destroy",
    "error_code",
    "error_destroy",
    "error_is_fatal",
    "error_is_retriable",
    "error_string",
    "error_txn_requires_abort",
    "fatal_error",
    "flush",
    "group_destroy",
    "group_new",
    "header_get",
    "init_transactions",
    "last_error",
    "message_destroy",
    "message_errstr",
    "message_headers",
    "message_timestamp",
    "metadata",
    "metadata_destroy",
    "new",
    "partitions_add",
    "partitions_destroy",
    "partitions_new",
    "partitions_set_offset",
    "poll",
    "poll_set_consumer",
    "produce",
    "produce_batch",
    "purge",
    "query_watermark_offsets",
    "queue_destroy",
    "queue_get_consumer",
    "queued_count",
    "sasl_in_background",
    "send_offsets",
    "set_token",
    "set_token_failure",
    "topic_destroy",
    "topic_name",
    "topic_new",
]

# A library's handle also finds the functions of the libraries that it is linked with.
_prompt, _waiting = ctypes.PyDLL(cimpl.__file__), ctypes.CDLL(cimpl.__file__)
PRODUCER, CONSUMER = 0, 1
WITHOUT_CLOSE = 8
COPY = 2
TOPIC, VALUE, KEY, FLAGS, HEADER = 2, 4, 5, 7, 9
"""Kinds of ``FieldStruct``."""
NOT_SENT = 3
"""Of ``purge``: what is queued, and what is under way."""
ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
RefreshCallback = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)


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


DeliveryCallback = ctypes.CFUNCTYPE(None, c_void_p, POINTER(MessageStruct), c_void_p)


class PartitionStruct(ctypes.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


class _Bytes(ctypes.Structure):
    _fields_ = (("at", c_char_p), ("size", c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("at", c_char_p), ("size", c_ssize_t))


class _Field(ctypes.Union):
    _fields_ = (
        ("topic", c_void_p),
        ("flags", c_int),
        ("bytes", _Bytes),
        ("header", _Header),
        ("_pad", ctypes.c_char * 64),
    )


class FieldStruct(ctypes.Structure):
    """``rd_kafka_vu_t``: what a message is made of, in ``produce``."""

    _fields_ = (("kind", c_int), ("of", _Field))


class _TopicStruct(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("count", c_int), ("partitions", c_void_p), ("err", c_int))


class MetadataStruct(ctypes.Structure):
    """``rd_kafka_metadata_t``."""

    _fields_ = (
        ("broker_count", c_int),
        ("brokers", c_void_p),
        ("topic_count", c_int),
        ("topics", POINTER(_TopicStruct)),
        ("orig_broker_id", c_int32),
        ("orig_broker_name", c_char_p),
    )


def _function(library: ctypes.CDLL, name: str, returns: Any, *arguments: Any) -> Any:
    found = library[f"rd_kafka_{name}"]
    found.restype, found.argtypes = returns, arguments
    return found


conf_new = _function(_prompt, "conf_new", c_void_p)
conf_set = _function(_prompt, "conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
conf_set_error_cb = _function(_prompt, "conf_set_error_cb", None, c_void_p, ErrorCallback)
conf_set_dr_msg_cb = _function(_prompt, "conf_set_dr_msg_cb", None, c_void_p, DeliveryCallback)
conf_set_refresh_cb = _function(
    _prompt, "conf_set_oauthbearer_token_refresh_cb", None, c_void_p, RefreshCallback
)
conf_enable_sasl_queue = _function(_prompt, "conf_enable_sasl_queue", None, c_void_p, c_int)
sasl_in_background = _function(_prompt, "sasl_background_callbacks_enable", c_void_p, c_void_p)
set_token = _function(
    _waiting,
    "oauthbearer_set_token",
    *(c_int, c_void_p, c_char_p, c_int64, c_char_p, POINTER(c_char_p), c_size_t),
    *(c_char_p, c_size_t),
)
set_token_failure = _function(_waiting, "oauthbearer_set_token_failure", c_int, c_void_p, c_char_p)
conf_destroy = _function(_prompt, "conf_destroy", None, c_void_p)

new = _function(_waiting, "new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
last_error = _function(_prompt, "last_error", c_int)
fatal_error = _function(_prompt, "fatal_error", c_int, c_void_p, c_char_p, c_size_t)
error_code = _function(_prompt, "error_code", c_int, c_void_p)
error_string = _function(_prompt, "error_string", c_char_p, c_void_p)
error_destroy = _function(_prompt, "error_destroy", None, c_void_p)
poll_set_consumer = _function(_waiting, "poll_set_consumer", c_int, c_void_p)
queue_get_consumer = _function(_waiting, "queue_get_consumer", c_void_p, c_void_p)
queue_destroy = _function(_waiting, "queue_destroy", None, c_void_p)
destroy = _function(_waiting, "destroy_flags", None, c_void_p, c_int)

partitions_new = _function(_prompt, "topic_partition_list_new", c_void_p, c_int)
partitions_add = _function(
    _prompt, "topic_partition_list_add", POINTER(PartitionStruct), c_void_p, c_char_p, c_int32
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
topic_name = _function(_prompt, "topic_name", c_char_p, c_void_p)
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

purge = _function(_waiting, "purge", c_int, c_void_p, c_int)
poll = _function(_waiting, "poll", c_int, c_void_p, c_int)
flush = _function(_waiting, "flush", c_int, c_void_p, c_int)
queued_count = _function(_prompt, "outq_len", c_int, c_void_p)
topic_new = _function(_waiting, "topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
topic_destroy = _function(_waiting, "topic_destroy", None, c_void_p)
produce_batch = _function(
    _waiting, "produce_batch", c_int, c_void_p, c_int32, c_int, c_void_p, c_int
)
produce = _function(_waiting, "produceva", c_void_p, c_void_p, POINTER(FieldStruct), c_size_t)
metadata = _function(
    _waiting,
    "metadata",
    *(c_int, c_void_p, c_int, c_void_p, POINTER(POINTER(MetadataStruct)), c_int),
)
metadata_destroy = _function(_prompt, "metadata_destroy", None, POINTER(MetadataStruct))

init_transactions = _function(_waiting, "init_transactions", c_void_p, c_void_p, c_int)
begin_transaction = _function(_waiting, "begin_transaction", c_void_p, c_void_p)
send_offsets = _function(
    _waiting,
    "send_offsets_to_transaction",
    *(c_void_p, c_void_p, c_void_p, c_void_p, c_int),
)
commit_transaction = _function(_waiting, "commit_transaction", c_void_p, c_void_p, c_int)
abort_transaction = _function(_waiting, "abort_transaction", c_void_p, c_void_p, c_int)
group_new = _function(_prompt, "consumer_group_metadata_new", c_void_p, c_char_p)
group_destroy = _function(_prompt, "consumer_group_metadata_destroy", None, c_void_p)

error_is_fatal = _function(_prompt, "error_is_fatal", c_int, c_void_p)
error_is_retriable = _function(_prompt, "error_is_retriable", c_int, c_void_p)
error_txn_requires_abort = _function(_prompt, "error_txn_requires_abort", c_int, c_void_p)

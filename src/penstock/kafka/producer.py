"""A producer that takes messages from where they are: in Arrow's memory, or in bytes objects.

confluent-kafka's takes a call for each message, which costs more than all that librdkafka does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition

from penstock.kafka import librdkafka as c
from penstock.kafka.handle import (
    check_code,
    check_error,
    ends_client,
    fatal_error,
    new_client,
    token_callbacks,
)

Column: TypeAlias = "Sequence[bytes | None] | pa.Array"
"""Keys or values: bytes objects, or an Arrow array of binary."""
Failed = Callable[[ClientError, str, int, bytes | None, bytes | None], None]
"""Is told of a message that was not delivered: why, topic, partition, key and value."""
_ANY_PARTITION = -1
_STRUCT = np.dtype(c.MessageStruct)
_EMPTY = ctypes.create_string_buffer(1)
"""An address for bytes of length 0: that of null is 0."""


class ProducerHandle:
    """A producer. What it lends to callbacks is copied. Not thread-safe.

    Methods raise KafkaException for what librdkafka refuses.

    Args:
        settings: librdkafka's, by their names.
        on_error: is told what goes wrong with connections, within ``poll`` and ``flush``.
        on_failed: is told there of messages that were not delivered.

    Raises:
        KafkaException: a setting is unknown, or has a wrong value.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_error: Callable[[ClientError], None],
        on_failed: Failed,
    ) -> None:
        def note_error(_handle: Any, code: int, text: bytes, _opaque: Any) -> None:
            on_error(ClientError(code, text.decode(errors="replace")))

        def note_failed(_handle: Any, message: Any, _opaque: Any) -> None:
            held = message.contents
            topic = c.topic_name(held.rkt).decode()
            key, value = _bytes_at(held.key, held.key_len), _bytes_at(held.payload, held.len)
            on_failed(ClientError(held.err), topic, held.partition, key, value)

        # librdkafka does not keep them alive.
        self._callbacks = (
            (c.conf_set_error_cb, c.ErrorCallback(note_error)),
            (c.conf_set_dr_msg_cb, c.DeliveryCallback(note_failed)),
            *token_callbacks(settings),
        )
        only_failed = {**settings, "delivery.report.only.error": True}
        self._handle = new_client(c.PRODUCER, only_failed, self._callbacks)
        self._topics: dict[str, int] = {}
        self._end = ends_client(self, _end, self._handle, self._topics)

    def produce(
        self, topic: str, keys: Column | None, values: Column
    ) -> tuple[int, ClientError | None]:
        """Queue messages; return how many of the first ones were, and why the next one was not."""
        messages, held = np.zeros(len(values), _STRUCT), []
        for column, at, size in ((keys, "key", "key_len"), (values, "payload", "len")):
            if column is not None:
                messages[at], messages[size], holder = _addresses(column)
                held.append(holder)
        queued = c.produce_batch(
            self._topic(topic), _ANY_PARTITION, c.COPY, messages.ctypes.data, len(messages)
        )
        if queued == len(messages):
            return queued, None
        # When the queue is full, librdkafka takes none of those behind either.
        first = int(np.flatnonzero(messages["err"])[0])
        return first, ClientError(int(messages["err"][first]))

    def produce_one(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> ClientError | None:
        """Queue a message with headers; return why it was not."""
        pairs = list(headers)
        fields = (c.FieldStruct * (4 + len(pairs)))()
        for field, kind in zip(fields, (c.TOPIC, c.FLAGS, c.KEY, c.VALUE), strict=False):
            field.kind = kind
        fields[0].of.topic, fields[1].of.flags = self._topic(topic), c.COPY
        for field, given in ((fields[2], key), (fields[3], value)):
            field.of.bytes.at, field.of.bytes.size = given, len(given or b"")
        for field, (name, given) in zip(fields[4:], pairs, strict=True):
            field.kind, header = c.HEADER, field.of.header
            header.name, header.at, header.size = name.encode(), given, len(given or b"")
        error = c.produce(self._handle, fields, len(fields))
        if not error:
            return None
        code = c.error_code(error)
        c.error_destroy(error)
        return ClientError(code)

    def poll(self, wait_s: float) -> int:
        """Serve callbacks, and wait for one; return how many messages are under way."""
        c.poll(self._handle, _ms(wait_s))
        return self._queued()

    def flush(self, wait_s: float) -> int:
        """Wait until all is delivered; return how many messages are under way."""
        c.flush(self._handle, _ms(wait_s))
        return self._queued()

    def fatal_error(self) -> ClientError | None:
        """Return why it failed for good, None if it did not."""
        return fatal_error(self._handle)

    def topic_error(self, topic: str, wait_s: float) -> ClientError | None:
        """Ask the brokers for a topic, which may create it; return what is wrong with it."""
        found = ctypes.POINTER(c.MetadataStruct)()
        given = (0, self._topic(topic), ctypes.byref(found), _ms(wait_s))
        check_code(c.metadata(self._handle, *given))
        code = found.contents.topics[0].err
        c.metadata_destroy(found)
        return ClientError(code) if code else None

    def init_transactions(self, wait_s: float) -> None:
        """Fence other producers of the transactional id."""
        check_error(c.init_transactions(self._handle, _ms(wait_s)))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        check_error(c.begin_transaction(self._handle))

    def send_offset(self, place: TopicPartition, group: str, wait_s: float) -> None:
        """Add the offset of a group to the transaction, with its metadata."""
        # Its size counts the byte 0 at its end.
        metadata = ctypes.create_string_buffer((place.metadata or "").encode())
        offsets, member = c.partitions_new(1), c.group_new(group.encode())
        try:
            added = c.partitions_add(offsets, place.topic.encode(), place.partition).contents
            added.offset = place.offset
            added.metadata, added.metadata_size = ctypes.addressof(metadata), len(metadata)
            try:
                check_error(c.send_offsets(self._handle, offsets, member, _ms(wait_s)))
            finally:
                added.metadata, added.metadata_size = None, 0  # else it would be freed
        finally:
            c.partitions_destroy(offsets)
            c.group_destroy(member)

    def commit_transaction(self, wait_s: float) -> None:
        """Commit the transaction."""
        check_error(c.commit_transaction(self._handle, _ms(wait_s)))

    def abort_transaction(self, wait_s: float) -> None:
        """Abort the transaction."""
        check_error(c.abort_transaction(self._handle, _ms(wait_s)))

    def close(self) -> None:
        """End it, and drop what is not sent; nothing else may be called after it."""
        self._end()

    def _queued(self) -> int:
        count: int = c.queued_count(self._handle)
        return count

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            topic = c.topic_new(self._handle, name.encode(), None)
            if not topic:
                check_code(c.last_error())
            self._topics[name] = int(topic)
        return self._topics[name]


def _end(handle: int, topics: Mapping[str, int]) -> None:
    c.purge(handle, c.NOT_SENT)
    for topic in topics.values():
        c.topic_destroy(topic)
    c.destroy(handle, 0)


def _addresses(column: Column) -> tuple[npt.NDArray[Any], npt.NDArray[Any], object]:
    """Return where the bytes of a column are, their lengths, and what keeps them there."""
    if isinstance(column, pa.Array):
        return _arrow_addresses(column)
    pointers: Any = (ctypes.c_char_p * len(column))(*column)
    try:
        sizes = np.fromiter(map(len, column), np.uintp, len(column))
    except TypeError:  # some are None
        sizes = np.fromiter((len(each or b"") for each in column), np.uintp, len(column))
    return np.frombuffer(pointers, np.uintp), sizes, (pointers, column)


def _arrow_addresses(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any], object]:
    column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    base = data.address if data is not None and data.size else ctypes.addressof(_EMPTY)
    at = (base + ends[:-1]).astype(np.uintp)
    sizes = np.diff(ends).astype(np.uintp)
    if column.null_count:
        missing = np.fromiter(column.is_null().to_pylist(), np.bool_, len(column))
        at[missing] = sizes[missing] = 0
    return at, sizes, column


def _bytes_at(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if address else None


def _ms(seconds: float) -> int:
    return round(1000 * seconds)

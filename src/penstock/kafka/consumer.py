"""A consumer that lends its messages where librdkafka has them."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.kafka import librdkafka as c
from penstock.kafka.messages import Messages

__all__ = ["ConsumerHandle"]

_MOST = 10_000
_TEXT_BYTES = 512


class ConsumerHandle:
    """A consumer that is assigned one partition at a time. Not thread-safe.

    Args:
        settings: librdkafka's, by their names.
        on_error: is told what goes wrong with connections, while ``messages`` waits.

    Raises:
        KafkaException: a setting is unknown, or has a wrong value.
    """

    def __init__(
        self, settings: Mapping[str, Any], on_error: Callable[[ClientError], None]
    ) -> None:
        def note(_handle: Any, code: int, text: bytes, _opaque: Any) -> None:
            on_error(ClientError(code, text.decode(errors="replace")))

        self._callback = c.ErrorCallback(note)  # librdkafka does not keep it alive
        self._addresses = np.empty(_MOST, np.intp)
        self._handle = _new_consumer(settings, self._callback)
        c.poll_set_consumer(self._handle)
        self._queue = c.queue_get_consumer(self._handle)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on, and no other."""
        wanted = c.partitions_new(1)
        try:
            c.partitions_add(wanted, topic.encode(), partition)
            c.partitions_set_offset(wanted, topic.encode(), partition, offset)
            _check(c.assign(self._handle, wanted))
        finally:
            c.partitions_destroy(wanted)

    def unassign(self) -> None:
        """Fetch nothing more."""
        _check(c.assign(self._handle, None))

    def query_end(self, topic: str, partition: int, wait_s: float) -> int | None:
        """Return where a partition ends, as its leader says; None if it does not in time."""
        begin, end = ctypes.c_int64(), ctypes.c_int64()
        found = (ctypes.byref(begin), ctypes.byref(end), round(1000 * wait_s))
        error = c.query_watermark_offsets(self._handle, topic.encode(), partition, *found)
        return None if error else end.value

    @contextmanager
    def messages(self, wait_s: float) -> Iterator[Messages]:
        """Lend what has come, or comes within a time, until the end of the block."""
        # A call for many would wait until it has so many.
        number = self._take(self._addresses[:1], wait_s)
        if number:
            number += self._take(self._addresses[1:], 0)
        lent = self._addresses[:number].copy()
        try:
            yield Messages.at(lent)
        finally:
            deque(map(c.message_destroy, lent.tolist()), maxlen=0)

    def _take(self, into: npt.NDArray[np.intp], wait_s: float) -> int:
        taken: int = c.consume_batch_queue(
            self._queue, round(1000 * wait_s), into.ctypes.data, len(into)
        )
        if taken < 0:
            _check(c.last_error())
        return taken

    def close(self) -> None:
        """End it."""
        c.queue_destroy(self._queue)
        c.destroy(self._handle, c.WITHOUT_CLOSE)


def _new_consumer(settings: Mapping[str, Any], callback: Any) -> int:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = c.conf_new()
    for name, value in settings.items():
        given = str(value).lower() if isinstance(value, bool) else str(value)
        if c.conf_set(conf, name.encode(), given.encode(), text, _TEXT_BYTES):
            c.conf_destroy(conf)
            raise _error(ClientError._INVALID_ARG, text)
    c.conf_set_error_cb(conf, callback)
    handle = c.new(c.CONSUMER, conf, text, _TEXT_BYTES)
    if not handle:
        code = c.last_error()
        c.conf_destroy(conf)
        raise _error(code, text)
    return int(handle)


def _error(code: int, text: ctypes.Array[ctypes.c_char]) -> KafkaException:
    return KafkaException(ClientError(code, text.value.decode(errors="replace")))


def _check(code: int) -> None:
    if code:
        raise KafkaException(ClientError(code))

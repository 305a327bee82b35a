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

from penstock.kafka import librdkafka as c
from penstock.kafka.handle import (
    check_code,
    ends_client,
    fatal_error,
    new_client,
    token_callbacks,
)
from penstock.kafka.messages import Messages

_MOST = 10_000


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
        def note(handle: int, code: int, text: bytes, _opaque: Any) -> None:
            on_error(_client_error(handle, code, text))

        self._raised: BaseException | None = None
        # librdkafka does not keep them alive.
        told = (c.conf_set_error_cb, c.ErrorCallback(self._guarded(note)))
        self._callbacks = [told, *token_callbacks(settings)]
        self._addresses = np.empty(_MOST, np.intp)
        self._handle = new_client(c.CONSUMER, settings, self._callbacks)
        c.poll_set_consumer(self._handle)
        self._queue = c.queue_get_consumer(self._handle)
        self._end = ends_client(self, _end, self._handle, self._queue)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on, and no other."""
        wanted = c.partitions_new(1)
        try:
            c.partitions_add(wanted, topic.encode(), partition)
            c.partitions_set_offset(wanted, topic.encode(), partition, offset)
            check_code(c.assign(self._handle, wanted))
        finally:
            c.partitions_destroy(wanted)

    def unassign(self) -> None:
        """Fetch nothing more."""
        check_code(c.assign(self._handle, None))

    def query_end(self, topic: str, partition: int, wait_s: float) -> int | None:
        """Return where a partition ends, as its leader says; None if it does not in time."""
        begin, end = ctypes.c_int64(), ctypes.c_int64()
        found = (ctypes.byref(begin), ctypes.byref(end), round(1000 * wait_s))
        error = c.query_watermark_offsets(self._handle, topic.encode(), partition, *found)
        return None if error else end.value

    @contextmanager
    def messages(self, wait_s: float) -> Iterator[Messages]:
        """Lend what has come, or comes within a time, until the end of the block.

        Callbacks run before it; what they raise is raised here.
        """
        # A call for many would wait until it has so many.
        number = self._take(self._addresses[:1], wait_s)
        if number:
            number += self._take(self._addresses[1:], 0)
        lent = self._addresses[:number].copy()
        try:
            if self._raised is not None:
                raise self._raised
            yield Messages.at(lent)
        finally:
            deque(map(c.message_destroy, lent.tolist()), maxlen=0)

    def _take(self, into: npt.NDArray[np.intp], wait_s: float) -> int:
        taken: int = c.consume_batch_queue(
            self._queue, round(1000 * wait_s), into.ctypes.data, len(into)
        )
        if taken < 0:
            check_code(c.last_error())
        return taken

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return what librdkafka can call: what it raises is for ``messages`` to raise."""

        def call(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:
                self._raised = error

        return call

    def close(self) -> None:
        """End it."""
        self._end()


def _end(handle: int, queue: int) -> None:
    c.queue_destroy(queue)
    c.destroy(handle, c.WITHOUT_CLOSE)


def _client_error(handle: int, code: int, text: bytes) -> ClientError:
    """Return the error that a consumer tells; of one that ends it, its cause."""
    if code == ClientError._FATAL and (cause := fatal_error(handle)) is not None:
        return cause
    return ClientError(code, text.decode(errors="replace"))

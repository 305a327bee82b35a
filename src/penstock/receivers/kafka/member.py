"""A member of a consumer group that lends its messages where librdkafka has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ctypes import POINTER, cast
from typing import Any

from confluent_kafka import KafkaError as ClientError

from penstock.kafka import librdkafka as c
from penstock.kafka.consumer import ConsumerHandle, partition_list
from penstock.kafka.handle import check_code, check_error
from penstock.kafka.offsets import partition_name, split_name
from penstock.model import Offsets

__all__ = ["Member"]

_COOPERATIVE = b"COOPERATIVE"
_ASYNCHRONOUS = 1


class Member(ConsumerHandle):
    """A consumer whose partitions a group assigns. Not thread-safe.

    All callbacks run within ``messages`` (and ``leave``). Partitions are ``topic/partition``.

    Args:
        settings: librdkafka's, by their names.
        on_error: is told what goes wrong with connections.
        on_assign: is given partitions that are the member's from now on; returns where each begins.
        on_revoke: is given partitions that are not the member's any more when it returns.
        on_commit: is given what became of a commit: an error, or None.

    Raises:
        KafkaException: a setting is unknown, or has a wrong value.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        on_error: Callable[[ClientError], None],
        on_assign: Callable[[list[str]], Offsets],
        on_revoke: Callable[[list[str]], None],
        on_commit: Callable[[ClientError | None], None],
    ) -> None:
        def note_commit(_handle: int, code: int, _listed: int, _opaque: Any) -> None:
            on_commit(ClientError(code) if code else None)

        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._parts: set[str] = set()
        self._is_paused = False
        rebalance, noted = self._guarded(self._rebalance), self._guarded(note_commit)
        callbacks = (
            (c.conf_set_rebalance_cb, c.PartitionsCallback(rebalance)),
            (c.conf_set_offset_commit_cb, c.PartitionsCallback(noted)),
        )
        super().__init__(settings, on_error, callbacks)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group, for topics and patterns that begin with ``^``."""
        listed = c.partitions_new(0)
        try:
            for topic in topics:
                c.partitions_add(listed, topic.encode(), -1)
            check_code(c.subscribe(self._handle, listed))
        finally:
            c.partitions_destroy(listed)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is fetched."""
        return self._is_paused

    def set_paused(self, paused: bool) -> None:
        """Fetch nothing until this is undone; the member stays in its group."""
        if paused != self._is_paused:
            self._is_paused = paused
            with partition_list(self._parts) as listed:
                self._apply_pause(listed)

    def commit(self, ends: Offsets) -> None:
        """Commit the group's offsets, without waiting."""
        with partition_list(ends) as listed:
            check_code(c.commit(self._handle, listed, _ASYNCHRONOUS))

    def leave(self) -> None:
        """Leave the group and end, as soon as the brokers answer."""
        self._end.detach()
        c.queue_destroy(self._queue)
        c.consumer_close(self._handle)
        c.destroy(self._handle, c.WITHOUT_CLOSE)

    def _rebalance(self, _handle: int, code: int, listed: int, _opaque: Any) -> None:
        is_assigned = code == ClientError._ASSIGN_PARTITIONS
        parts = _parts(listed)
        try:
            if is_assigned:
                for part, begin in self._on_assign(parts).items():
                    topic, partition = split_name(part)
                    c.partitions_set_offset(listed, topic.encode(), partition, begin)
            else:
                self._on_revoke(parts)
        finally:  # it waits for this before it leaves, too
            self._answer(is_assigned, listed)
        if is_assigned:
            self._parts.update(parts)
            # The client keeps a pause of a partition that was taken away, and is given back now.
            self._apply_pause(listed)
        else:
            self._parts.difference_update(parts)

    def _answer(self, is_assigned: bool, listed: int) -> None:
        if c.rebalance_protocol(self._handle) != _COOPERATIVE:
            check_code(c.assign(self._handle, listed if is_assigned else None))
            return
        answer = c.incremental_assign if is_assigned else c.incremental_unassign
        check_error(answer(self._handle, listed))

    def _apply_pause(self, listed: int) -> None:
        change = c.pause_partitions if self._is_paused else c.resume_partitions
        check_code(change(self._handle, listed))


def _parts(listed: int) -> list[str]:
    held = cast(listed, POINTER(c.PartitionsStruct)).contents
    places = (held.elems[number] for number in range(held.cnt))
    return [partition_name(place.topic.decode(), place.partition) for place in places]

"""A member of a consumer group that stores what it reads, from its join to its leave.

Invariants, for each record once in the journal (penstock.receivers.ownership tells why they do):

1. A partition is read from where the journal's ownership log says, after this writer was made its
   owner there: never from the group's offsets.
2. Records of a partition are stored in order, under positions that tell where they end.
3. A partition that the group takes back is released in the ownership log after all that was stored
   of it is durable. What was read of it and not stored is dropped: the next owner reads it again.
4. The group's offsets are committed only for what is durable. They are for tools, and for others
   that read the group's offsets; nothing here depends on them.

All of it runs in one thread; librdkafka calls back only within ``poll`` and ``consume``. Only acks
come from the writer's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as ClientError

from penstock.errors import KafkaDataLossError
from penstock.kafka.client_conf import resolve
from penstock.kafka.failures import FINAL, OUT_OF_RANGE, error_of, kafka_error
from penstock.model import Offsets
from penstock.receivers.kafka.options import KafkaOptions
from penstock.receivers.kafka.parts import part_of, part_of_place, place_of, topic_of
from penstock.receivers.kafka.records import to_batch
from penstock.receivers.kafka.starts import starts, topic_ids
from penstock.receivers.ownership import ReplacedSourceError
from penstock.receivers.threaded import ThreadedReceiver

__all__ = ["Consumption"]

_log = logging.getLogger(__name__)
_MOST = 10_000
_POLL_S = 0.1
_STORE_BYTES = 8 << 20
_UNPOLLED_S = 1.0
"""The longest time without a poll, by which the group's rebalances are delayed."""
_COMMIT_S = 1.0
_SETTLE_S = 5.0
"""An idle member notes this often, at most, that it is at the end of partitions."""
_LEAVE_S = 5.0
_EVEN_MS = range(250, 500)
"""Stores that wait for the rate are sized to wait for about this long."""
_DEFAULTS = {"isolation.level": "read_committed", "check.crcs": True}
_DEFAULTS |= {"queued.max.messages.kbytes": 16_384}  # it is fetched again after each pause

_RESET = (
    "to go on: penstock kafka reset JOURNAL --brokers HOST:PORT --source STREAM --to-earliest "
    "--apply"
)


class Consumption:
    """One start of a receiver.

    Args:
        receiver: what to store through.
        options: what to read.
    """

    def __init__(self, receiver: ThreadedReceiver, options: KafkaOptions) -> None:
        self._receiver = receiver
        self._options = options
        self._ownership = receiver.ownership()
        self._settings = options.member_conf(receiver.identity().receiver)
        self._read: dict[str, int] = {}
        """The next offset of each partition that this member owns."""
        self._stored: dict[str, int] = {}
        """The end of what was stored of each."""
        self._pending: list[Message] = []
        """What was read and is not stored."""
        self._most = _MOST
        self._retry_s = 0.0
        self._polled_s = 0.0
        self._is_paused = False
        self._durable = _Durable()
        self._committed_s = 0.0
        self._settled_s = 0.0
        self._error: ClientError | None = None
        self._is_unreachable = False
        conf = {**_DEFAULTS, **resolve(self._settings)}
        conf |= {"enable.auto.commit": False, "enable.auto.offset.store": False}
        conf |= {"auto.offset.reset": "error", "log_level": 0}
        conf |= {"enable.partition.eof": True}  # it tells how far partitions end without a record
        self._consumer = Consumer(
            {**conf, "error_cb": self._note_error, "on_commit": self._note_commit}
        )

    def run(self) -> None:
        """Receive until the receiver shall end; then release all partitions, and leave the group.

        Raises:
            KafkaError: the brokers refuse.
            KafkaDataLossError: records that were to be read next are gone.
            PenstockError: what ``store`` and ``Ownership`` raise.
        """
        try:
            self._consumer.subscribe(
                list(self._options.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            while not self._receiver.shallEnd():
                self._step()
            self._release([*self._read])
        except KafkaException as error:
            raise self._failure(error_of(error), "read topics") from None
        finally:
            self._read.clear()  # nothing is left to be released when the client says what it leaves
            self._leave()

    def _leave(self) -> None:
        """Leave the group; brokers that do not answer are told by the session's timeout."""
        leaving = threading.Thread(target=self._consumer.close, name="penstock-leave", daemon=True)
        leaving.start()
        leaving.join(_LEAVE_S)

    def _step(self) -> None:
        if self._error is not None:
            raise self._failure(self._error, "read topics")
        self._commit()
        if not self._pending:
            self._set_paused(False)
            if (first := self._poll(_POLL_S)) is not None:
                self._take([first])  # before the group can take its partition back
                self._take(self._consumer.consume(_MOST, 0))
            else:
                self._settle()
        elif (wait_s := self._retry_s - time.monotonic()) > 0:
            self._wait(min(wait_s, _POLL_S))
        else:
            self._store()

    def _poll(self, timeout_s: float) -> Message | None:
        self._polled_s = time.monotonic()
        return self._consumer.poll(timeout_s)

    def _wait(self, seconds: float) -> None:
        """Wait for the rate, or for room in the journal; from time to time the group is heard."""
        if time.monotonic() - self._polled_s > _UNPOLLED_S:
            self._set_paused(True)
        if not self._is_paused:
            self._receiver.pause(seconds)
        elif (message := self._poll(seconds)) is not None:
            self._take([message])

    def _set_paused(self, paused: bool) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            places = [*map(place_of, self._read)]
            (self._consumer.pause if paused else self._consumer.resume)(places)

    def _take(self, messages: Iterable[Message]) -> None:
        self._is_unreachable = False
        for message in messages:
            part, offset = part_of(message), int(message.offset() or 0)
            if (error := message.error()) is not None:
                if error.code() != ClientError._PARTITION_EOF:
                    self._check(error, message)
                elif part in self._read:
                    self._read[part] = max(self._read[part], offset)
                continue
            if offset >= self._read.get(part, offset + 1):  # else of an assignment that has ended
                self._read[part] = offset + 1
                self._pending.append(message)

    def _store(self) -> None:
        """Store what was read, or so much of it that it comes evenly under a rate limit."""
        part = self._pending[: self._most]
        batch = to_batch(part, self._options.columns)
        if batch.nbytes > _STORE_BYTES and len(part) > 1:
            self._most = len(part) // 2
            return
        if len(part) == len(self._pending):
            ends = dict(self._read)
        else:
            last = {part_of(each): int(each.offset() or 0) + 1 for each in part}
            ends = {**self._stored, **last}
        wait_ms = self._receiver.tryStore(
            batch,
            self._ownership.position(ends),
            partial(self._durable.put, ends),
        )
        if wait_ms >= _EVEN_MS.stop and not self._retry_s:
            self._most = max(1, self._most // 2)
        elif wait_ms < _EVEN_MS.start and not self._retry_s:
            self._most = min(_MOST, self._most * 2)
        self._retry_s = time.monotonic() + wait_ms / 1000 if wait_ms else 0.0
        if not wait_ms:
            self._stored = ends
            del self._pending[: len(part)]

    def _settle(self) -> None:
        """Make durable how far this member is in partitions that end without a record.

        Transactions end with marks. While the journal is behind these, records that retention
        deletes seem to be lost, and tools see a lag.
        """
        ends = {part: end for part, end in self._read.items() if end > self._stored[part]}
        if ends and time.monotonic() - self._settled_s >= _SETTLE_S:
            self._settled_s = time.monotonic()
            self._receiver.store([])
            self._ownership.settle(ends)
            self._stored |= ends
            self._durable.put(ends)

    # -- the group --

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Begin where the journal says."""
        self._receiver.store([])  # all that was stored is durable
        begins: Offsets = {}
        if places:
            begins = self._claim([*map(part_of_place, places)])
        for place in places:
            place.offset = begins[part_of_place(place)]
        self._read |= begins
        self._stored |= begins
        if self._options.is_incremental:
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
        # The client keeps a pause of a partition that was taken away, and is given back now.
        (consumer.pause if self._is_paused else consumer.resume)(places)
        _log.info("Stream %s reads %s", self._receiver.identity().stream, begins or "no partition")

    def _claim(self, parts: list[str]) -> Offsets:
        ids = topic_ids(self._settings, parts)
        try:
            return self._ownership.claim(parts, self._starts, lambda part: ids.get(topic_of(part)))
        except ReplacedSourceError as error:
            raise KafkaDataLossError(
                "a topic was deleted and created anew since it was read",
                operation="read topic",
                ids={"stream": self._receiver.identity().stream, **error.ids},
                hint=_RESET,
            ) from error

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._release([part for place in places if (part := part_of_place(place)) in self._read])

    def _release(self, parts: list[str]) -> None:
        """Let others have partitions, after all that was stored of them is durable."""
        if not parts:
            return
        stored = {part: self._stored.pop(part) for part in parts}
        ends = {part: self._read.pop(part) for part in parts}
        ends |= {part: stored[part] for each in self._pending if (part := part_of(each)) in ends}
        self._pending = [each for each in self._pending if part_of(each) not in ends]
        self._receiver.store([])
        self._commit_offsets(ends)
        self._ownership.release(parts, ends)

    def _starts(self, is_first: bool) -> Offsets:
        return starts(self._options, self._settings, self._consumer, is_first=is_first)

    # -- the group's offsets --

    def _commit(self) -> None:
        """Commit how far this member is, once a second."""
        if time.monotonic() - self._committed_s >= _COMMIT_S:
            self._committed_s = time.monotonic()
            durable = self._durable.take()
            self._commit_offsets({p: end for p, end in durable.items() if p in self._read})

    def _commit_offsets(self, ends: Offsets) -> None:
        if ends:
            places = [place_of(part, end) for part, end in ends.items()]
            self._consumer.commit(offsets=places, asynchronous=True)

    def _note_commit(self, error: ClientError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            failed = self._failure(error, "commit group offsets")
            _log.warning("Tools see an old lag of this stream: %s", failed)

    # -- errors --

    def _note_error(self, error: ClientError) -> None:
        """Take what the client tells of its connections; it tries again by itself."""
        if error.code() in FINAL or error.fatal():
            self._error = error
        elif error.code() == ClientError._ALL_BROKERS_DOWN and not self._is_unreachable:
            self._is_unreachable = True
            self._receiver.reportError(
                "no broker answers", self._failure(error, "connect to Kafka brokers")
            )

    def _check(self, error: ClientError, message: Message) -> None:
        if error.code() in OUT_OF_RANGE:
            part = part_of(message)
            raise KafkaDataLossError(
                f"offset {self._read.get(part)} of {part} is not in the topic",
                operation="read topic",
                ids={"stream": self._receiver.identity().stream, "partition": part},
                hint=f"records were deleted before they were read; {_RESET}",
            )
        if error.code() == ClientError._MAX_POLL_EXCEEDED or error.retriable():
            _log.warning("Kafka: %s", error.str())
            return
        raise self._failure(error, "read topics")

    def _failure(self, error: ClientError, operation: str) -> Exception:
        return kafka_error(error, operation, self._settings, group=self._settings["group.id"])


class _Durable:
    """How far partitions are durable; acks tell from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, int] = {}

    def put(self, ends: Offsets) -> None:
        with self._lock:
            self._ends.update(ends)

    def take(self) -> dict[str, Any]:
        """Return what is new."""
        with self._lock:
            taken, self._ends = self._ends, {}
            return taken

"""A member of a consumer group that stores what it reads, from its join to its leave.

Invariants, for each record once in the journal (penstock.receivers.ownership tells why they do):

1. A partition is read from where the journal's ownership log says, after this writer was made its
   owner there: never from the group's offsets.
2. Records of a partition are stored in order, under positions that tell where they end.
3. A partition that the group takes back is released in the ownership log after all that was stored
   of it is durable. What was read of it and not stored is dropped: the next owner reads it again.
4. The group's offsets are committed only for what is durable. They are for tools, and for others
   that read the group's offsets; nothing here depends on them.

All of it runs in one thread; the group calls back only within ``Member.messages``. Only acks come
from the writer's thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.errors import KafkaDataLossError, KafkaError
from penstock.journal import RecordFormat
from penstock.kafka.brokers import group_members
from penstock.kafka.client_conf import resolve
from penstock.kafka.columns import to_batch
from penstock.kafka.failures import FINAL, OUT_OF_RANGE, error_of, kafka_error, settings_checked
from penstock.kafka.messages import Messages
from penstock.kafka.offsets import split_name
from penstock.model import Offsets
from penstock.receivers.kafka.member import Member
from penstock.receivers.kafka.options import KafkaOptions
from penstock.receivers.kafka.starts import starts, topic_ids
from penstock.receivers.kafka.taken import Taken
from penstock.receivers.ownership import ReplacedSourceError
from penstock.receivers.threaded import ThreadedReceiver

__all__ = ["Consumption", "store_size"]

_log = logging.getLogger(__name__)
_VALUES = RecordFormat("binary").arrow
_FIRST = 100
_MOST = 10_000
_POLL_S = 0.1
_STORE_BYTES = 8 << 20
_UNPOLLED_S = 1.0
"""The longest time without a poll, by which the group's rebalances are delayed."""
_COMMIT_S = 1.0
_SETTLE_S = 5.0
"""An idle member notes this often, at most, that it is at the end of partitions."""
_LEAVE_S = 5.0
_CHECK_S = 10.0
"""So long after a rebalance every member has made the partitions its own that it stores."""
_EVEN_MS = 375
"""Under a rate limit, stores are sized so that the next one waits for about this long."""
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
        self._pending: Taken | None = None
        """What was read and is not stored."""
        self._most = self._newest = _FIRST
        """The number of records of the next store, at most, and of the last one."""
        self._retry_s = 0.0
        self._polled_s = 0.0
        self._durable = _Durable()
        self._committed_s = 0.0
        self._settled_s = 0.0
        self._checked_s = math.inf
        """When the group's members are checked."""
        self._error: ClientError | None = None
        self._is_unreachable = False
        conf = {**_DEFAULTS, **resolve(self._settings)}
        conf |= {"enable.auto.commit": False, "enable.auto.offset.store": False}
        conf |= {"auto.offset.reset": "error", "log_level": 0}
        conf |= {"enable.partition.eof": True}  # it tells how far partitions end without a record
        with settings_checked("configure Kafka client", self._settings):
            self._member = Member(
                conf,
                on_error=self._note_error,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_commit=self._note_commit,
            )

    def run(self) -> None:
        """Receive until the receiver shall end; then release all partitions, and leave the group.

        Raises:
            KafkaError: the brokers refuse.
            KafkaDataLossError: records that were to be read next are gone.
            PenstockError: what ``store`` and ``Ownership`` raise.
        """
        try:
            self._member.subscribe(self._options.topics)
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
        leaving = threading.Thread(target=self._member.leave, name="penstock-leave", daemon=True)
        leaving.start()
        leaving.join(_LEAVE_S)

    def _step(self) -> None:
        if self._error is not None:
            raise self._failure(self._error, "read topics")
        self._commit()
        self._check_group()
        if self._pending is None:
            self._member.set_paused(False)
            with self._poll(_POLL_S) as messages:
                self._take(messages)
            if self._pending is None:
                self._settle()
        elif (wait_s := self._retry_s - time.monotonic()) > 0:
            self._wait(min(wait_s, _POLL_S))
        else:
            self._store(self._pending)

    def _poll(self, timeout_s: float, most: int = _MOST) -> AbstractContextManager[Messages]:
        self._polled_s = time.monotonic()
        return self._member.messages(timeout_s, most)

    def _wait(self, seconds: float) -> None:
        """Wait for the rate, or for space in the journal; from time to time the group is polled."""
        if time.monotonic() - self._polled_s > _UNPOLLED_S:
            self._member.set_paused(True)
        if not self._member.is_paused:
            self._receiver.pause(seconds)
            return
        # One at a time: a second one could be of a partition that was given back in between, from
        # where the records begin that were dropped then.
        with self._poll(seconds, 1) as messages:
            self._take(messages)

    def _take(self, messages: Messages) -> None:
        if len(messages):
            self._is_unreachable = False
        runs = []
        for part, run in messages.records().runs():
            # Others are of an assignment that has ended.
            if part in self._read and len(new := run.new_from(self._read[part])):
                self._read[part] = new.last_offset + 1
                runs.append((part, new))
        if runs:
            rows = self._rows(Messages.concat([run for _, run in runs]))
            offsets = [(part, run.offsets().to_numpy()) for part, run in runs]
            taken = Taken.of_runs(rows, offsets)
            self._pending = self._pending.followed_by(taken) if self._pending else taken
        for part, offset, error in messages.errors():
            if error.code() != ClientError._PARTITION_EOF:
                self._check(error, part)
            elif part in self._read:
                self._read[part] = max(self._read[part], offset)

    def _rows(self, messages: Messages) -> pa.RecordBatch:
        if self._options.columns is not None:
            return to_batch(messages, self._options.columns)
        return pa.record_batch([messages.values().fill_null(b"")], schema=_VALUES)

    def _store(self, pending: Taken) -> None:
        """Store what was read, or so much of it that it comes evenly under a rate limit."""
        part = pending.within(self._most, _STORE_BYTES)
        is_all = len(part) == len(pending)
        ends = dict(self._read) if is_all else {**self._stored, **part.ends()}
        wait_ms = self._receiver.tryStore(
            part.rows, self._ownership.position(ends), partial(self._durable.put, ends)
        )
        if not self._retry_s:
            self._most = store_size(self._most, self._newest, wait_ms)
        self._retry_s = time.monotonic() + wait_ms / 1000 if wait_ms else 0.0
        if not wait_ms:
            self._stored, self._newest = ends, len(part)
            self._pending = None if is_all else pending.after(len(part))

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

    def _on_assign(self, parts: list[str]) -> Offsets:
        """Begin where the journal says."""
        self._checked_s = time.monotonic() + _CHECK_S
        self._receiver.store([])  # all that was stored is durable
        begins = self._claim(parts) if parts else {}
        self._read |= begins
        self._stored |= begins
        _log.info("Stream %s reads %s", self._receiver.identity().stream, begins or "no partition")
        return begins

    def _claim(self, parts: list[str]) -> Offsets:
        ids = topic_ids(self._settings, parts)
        try:
            return self._ownership.claim(
                parts, self._starts, lambda part: ids.get(split_name(part)[0])
            )
        except ReplacedSourceError as error:
            raise KafkaDataLossError(
                "a topic was deleted and created anew since it was read",
                operation="read topic",
                ids={"stream": self._receiver.identity().stream, **error.ids},
                hint=_RESET,
            ) from error

    def _on_revoke(self, parts: list[str]) -> None:
        self._checked_s = time.monotonic() + _CHECK_S
        self._release([part for part in parts if part in self._read])

    def _release(self, parts: list[str]) -> None:
        """Let others have partitions, after all that was stored of them is durable."""
        if not parts:
            return
        stored = {part: self._stored.pop(part) for part in parts}
        ends = {part: self._read.pop(part) for part in parts}
        if self._pending is not None:
            ends |= {part: stored[part] for part in self._pending.ends() if part in ends}
            self._pending = self._pending.without(ends) or None
        self._receiver.store([])
        self._commit_offsets(ends)
        self._ownership.release(parts, ends)

    def _starts(self, is_first: bool) -> Offsets:
        return starts(self._options, self._settings, is_first=is_first)

    def _check_group(self) -> None:
        """Report partitions that the group gives to a member that does not store them here."""
        if time.monotonic() < self._checked_s:
            return
        self._checked_s = math.inf
        group = self._settings["group.id"]
        try:
            members = group_members(self._settings, group)
        except KafkaError:
            return  # as of users that may not ask: the stream does not need the answer
        if others := self._ownership.without_owner(members):
            more = f" and {len(others) - 1} more partitions" if len(others) > 1 else ""
            error = KafkaError(
                f"group {group} gives {others[0]}{more} to {members[others[0]]}, which does not "
                "store them in this stream: their records are missing here",
                operation="read topics",
                ids={"stream": self._receiver.identity().stream},
                hint="a group is for one stream: give each a group.id of its own, and stop other "
                "consumers of this one",
            )
            self._receiver.reportError("other programs use its group", error)

    # -- the group's offsets --

    def _commit(self) -> None:
        """Commit how far this member is, once a second."""
        if time.monotonic() - self._committed_s >= _COMMIT_S:
            self._committed_s = time.monotonic()
            durable = self._durable.take()
            self._commit_offsets({p: end for p, end in durable.items() if p in self._read})

    def _commit_offsets(self, ends: Offsets) -> None:
        if ends:
            self._member.commit(ends)

    def _note_commit(self, error: ClientError | None) -> None:
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

    def _check(self, error: ClientError, part: str) -> None:
        if error.code() in OUT_OF_RANGE:
            raise KafkaDataLossError(
                f"offset {self._read.get(part)} of {part} is not in the topic",
                operation="read topic",
                ids={"stream": self._receiver.identity().stream, "partition": part},
                hint=f"records were deleted before they were read; {_RESET}",
            )
        if error.code() == ClientError._MAX_POLL_EXCEEDED:
            _log.warning("Kafka: %s", error.str())
            return
        raise self._failure(error, "read topics")

    def _failure(self, error: ClientError, operation: str) -> Exception:
        return kafka_error(error, operation, self._settings, group=self._settings["group.id"])


def store_size(most: int, stored: int, wait_ms: int) -> int:
    """Return the number of records of the next store, at most. Pure.

    Args:
        most: that number so far.
        stored: the number of records of the last store.
        wait_ms: how long the rate limit makes the next one wait for it.
    """
    even = stored * _EVEN_MS // wait_ms if wait_ms else _MOST
    return max(1, min(2 * most, even, _MOST))


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

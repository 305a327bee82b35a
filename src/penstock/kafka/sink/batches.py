"""The driver's side of an exactly-once sink; ``partition`` has the invariants."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import KafkaFencedError
from penstock.exactly_once import check_plan
from penstock.kafka.sink import failures
from penstock.kafka.sink.failures import KafkaStuckError
from penstock.kafka.sink.partition import Destination
from penstock.kafka.sink.tokens import Begun, Done, batch_name, partition_name
from penstock.kafka.sink.transactions import TransactionalSender
from penstock.model import OutputBatch

_log = logging.getLogger(__name__)
_CLAIMS_AT_ONCE = 8
_IDLE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a batch."""

    number: int
    """Counts the attempts at all batches of the output."""
    done: frozenset[int]
    """The partitions that are written: to be proved before the others are written."""


class SinkBatches:
    """The batches of one output on one topic. Thread-safe.

    Args:
        settings: of ``ClientConf.settings``.
        topic: where records go, or most of them; it must exist.
        location_id: of the checkpoint location.
        output: the output's name.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, location_id: str, output: str
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._name = batch_name(location_id, output)
        self._driver = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._sender: TransactionalSender[Begun] | None = None
        self._used_s = 0.0
        self._last: Begun | None = None
        self._is_open = False
        """Whether this driver took the output over once: the token is its own from then on."""

    def open(self, written: Collection[int]) -> None:
        """Fence the driver before this one, and see that tokens are kept from now on.

        ``written`` are the batches that an earlier run with this output may have written, and that
        run again.

        Raises:
            KafkaError: the brokers do not answer or refuse, or forgot what those batches wrote.
        """
        with self._lock:
            self._take_over()
            if self._last is None:
                if written:
                    raise failures.forgotten(self._name, self._topic, min(written))
                self._record(0, _first_attempt(), 0)

    def begin(
        self,
        batch_id: int,
        partitions: int,
        *,
        may_be_written: bool,
        output: OutputBatch | None = None,
    ) -> Attempt:
        """Begin to write a batch.

        Args:
            batch_id: the batch.
            partitions: how many it has now.
            may_be_written: whether an earlier run may have written it.
            output: the batch with its plan, where it has one.

        Raises:
            ConcurrentDriverError: another driver has taken over.
            SinkError: the sink has begun another batch than the location's log has.
            KafkaError: the brokers do not answer or refuse; they forgot what the batch wrote; or it
                is written in part, with another number of partitions.
        """
        with self._lock:
            self._take_over()
            last = self._last or Begun(0, _first_attempt(), 0)
            if self._last is None and may_be_written:
                self._tell_forgotten(batch_id)
            if last.next_id > batch_id + 1:
                raise failures.overtaken(self._name, batch_id, last.next_id - 1)
            plan = self._check_plan(output)
            attempt = last.attempt + 1
            is_begun = last.next_id == batch_id + 1
            # Before the claims, which write ``done`` again: it has to be known for longer.
            self._record(batch_id + 1, attempt, last.partitions if is_begun else partitions, plan)
            if not is_begun:
                return Attempt(attempt, frozenset())
            done = self._claim(batch_id, attempt, last.partitions)
            if partitions != last.partitions:
                if done:
                    raise failures.other_partitions(
                        self._name, batch_id, len(done), last.partitions, partitions
                    )
                self._record(batch_id + 1, attempt, partitions, plan)
        return Attempt(attempt, done)

    def keep(self, batch_id: int, output: OutputBatch | None = None) -> None:
        """Have the brokers keep the token while a program has nothing to write.

        Args:
            batch_id: a batch without partitions, which is begun here as any other one: tokens of
                partitions that expire meanwhile are of earlier batches, which are done.
            output: the batch with its plan, where it has one.

        Raises:
            ConcurrentDriverError: another driver has taken over.
            SinkError: as ``begin``.
            KafkaError: the brokers do not answer or refuse; or the sink has begun the batch, with
                partitions, or a later one.
        """
        with self._lock:
            if self._last is not None:
                self._check_not_begun(batch_id, self._last)
            is_idle = time.monotonic() - self._used_s >= _IDLE_S
            if is_idle and self._last is not None and self._last.next_id <= batch_id:
                self._take_over()
                plan = self._check_plan(output)
                self._record(batch_id + 1, self._last.attempt + 1, 0, plan)

    def destination(self, batch_id: int) -> Destination:
        """Return what the tasks of a batch need, besides the attempt's number."""
        return Destination(self._settings, self._topic, self._name, batch_id)

    def close(self) -> None:
        """End."""
        with self._lock:
            self._close()

    def _take_over(self, *, anew: bool = False) -> None:
        """Have the newest producer of the name; raise if another driver wrote meanwhile."""
        if self._sender is not None:
            is_idle = time.monotonic() - self._used_s >= _IDLE_S
            if self._sender.is_fresh() and not is_idle and not anew:
                return
            self._check_sole(self._sender.tokens.read())
            self._close()
        sender = TransactionalSender(self._settings, self._topic, self._name, Begun)
        try:
            sender.begin_epoch()
            found = sender.tokens.read()
            self._check_sole(found)
        except BaseException:
            sender.close()
            raise
        self._sender, self._used_s = sender, time.monotonic()
        self._last = found or self._last
        self._is_open = True

    def _check_sole(self, found: Begun | None) -> None:
        """Raise if a token is another driver's, written since this one took the output over.

        One that has expired is no one's. One that this driver does not know may be its own: of a
        commit that was not answered.
        """
        if not self._is_open or found is None or found == self._last:
            return
        if found.driver != self._driver:
            raise failures.driver_fenced(self._name)

    def _close(self) -> None:
        if self._sender is not None:
            sender, self._sender = self._sender, None
            sender.close()

    def _check_plan(self, output: OutputBatch | None) -> str:
        """Check the batch that was begun last, and return the plan of the one that begins.

        Without its plan it is told from others by its records, when it is proved.
        """
        if output is None:
            return ""
        if self._last is not None and self._last.plan:
            check_plan(output, self._last.next_id - 1, self._last.plan, self._topic)
        return output.plan

    def _record(self, next_id: int, attempt: int, partitions: int, plan: str = "") -> None:
        begun = Begun(next_id, attempt, partitions, self._driver, plan)
        try:
            self._commit(begun)
        except KafkaStuckError:
            self._take_over(anew=True)
            self._commit(begun)
        self._last = begun
        self._used_s = time.monotonic()

    def _commit(self, begun: Begun) -> None:
        assert self._sender is not None
        try:
            self._sender.begin()
            self._sender.commit(begun)
        except KafkaFencedError as error:
            raise failures.driver_fenced(self._name) from error

    def _claim(self, batch_id: int, attempt: int, partitions: int) -> frozenset[int]:
        """Take all partitions over from earlier attempts at a batch; return which are done."""

        def claim(index: int) -> bool:
            try:
                return self._claim_one(batch_id, attempt, index)
            except KafkaStuckError:
                return self._claim_one(batch_id, attempt, index)
            except KafkaFencedError as error:
                raise failures.driver_fenced(self._name) from error

        with ThreadPoolExecutor(_CLAIMS_AT_ONCE) as threads:
            done = list(threads.map(claim, range(partitions)))
        return frozenset(index for index, is_done in enumerate(done) if is_done)

    def _claim_one(self, batch_id: int, attempt: int, index: int) -> bool:
        name = partition_name(self._name, index)
        sender = TransactionalSender(self._settings, self._topic, name, Done)
        try:
            sender.begin_epoch()
            done = sender.tokens.read() or Done(batch_id, attempt)
            if done.attempt > attempt:
                raise failures.driver_fenced(self._name)
            sender.begin()
            # Without a writer: the producers that executors have kept are fenced now.
            sender.commit(replace(done, attempt=attempt, writer=""))
            return done.next_id > batch_id
        finally:
            sender.close()

    def _check_not_begun(self, batch_id: int, last: Begun) -> None:
        """Raise KafkaError for an empty batch in the place of one that may have been written."""
        if last.next_id > batch_id + 1:
            raise failures.overtaken(self._name, batch_id, last.next_id - 1)
        if last.next_id == batch_id + 1 and last.partitions:
            raise failures.emptied(self._name, batch_id, last.partitions)

    def _tell_forgotten(self, batch_id: int) -> None:
        if batch_id > 0:
            raise failures.forgotten(self._name, self._topic, batch_id)
        _log.warning(
            "Sink %s has no token, as before its first batch. If its first batch was written in "
            "part, longer ago than offsets.retention.minutes, that part is written twice",
            self._name,
        )


def _first_attempt() -> int:
    """Return a number above those of attempts whose token the brokers forgot.

    Tokens of partitions may still have them: a smaller number would be one of the past.
    """
    return time.time_ns() // 1_000_000

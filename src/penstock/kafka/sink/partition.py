"""Writes a partition of a batch: the protocol of the exactly-once sink, in executors.

    driver     fence the driver before it; attempt := last attempt + 1            SinkBatches.begin
               begun := (batch, attempt, partitions)                              a transaction
               begun before? partitions := those of before; claim them for this attempt: which are
               done? if none is, begun := (batch, attempt, partitions of today)
    executor   each partition: not done yet? fence its other producers; read done   write_partition
               done? prove that these are the same records, and send nothing
               else  {records, done := (batch, attempt, count, checksum)}         a transaction

Invariants:

1. A batch's records of a partition and ``done`` of the partition are in one transaction. So a
   partition is written once for each batch, however often it is tried, by however many at a time:
   the broker lets only the newest producer of a transactional id commit, and that one has read
   ``done`` after it fenced the others.
2. No transaction of a batch begins before ``begun`` of it is durable. ``begun`` is written by one
   driver: the newest, which fenced those before it.
3. An attempt writes nothing in a partition that a later attempt has claimed or written. An attempt
   that finds its batch begun claims *all* partitions that the earlier attempt had: a task of that
   attempt that wakes later, and even one that fences the newer producer, finds the claim, and ends.
4. When some partitions of a batch are done and others are not, the batch has as many partitions as
   before, and those that are done are proved to have the same records (number and checksum) before
   any other is written. So those that are not done have exactly the records that are missing, if
   the batch as a whole has the same records as before. If none is done, any number of partitions
   will do. A task whose input was cut off commits nothing: the iterator of its records raises.
5. ``done`` of a batch is written after ``begun`` of it, so the brokers forget it later
   (offsets.retention.minutes): while ``begun`` is known, what is not known to be done is not done.
   A claim writes ``done`` again, so it follows ``begun`` of its attempt, too. If ``begun`` is not
   known and the batch may have been written, nothing is written. For the same attempt ``begun`` is
   written again only when no partition is done. An idle program keeps it: it begins a batch that is
   empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import KafkaFencedError
from penstock.kafka.client_conf import client_key
from penstock.kafka.idle import IdleClients
from penstock.kafka.sink import failures
from penstock.kafka.sink.producer import Sender
from penstock.kafka.sink.records import Outgoing, Tally
from penstock.kafka.sink.tokens import Begun, Done, partition_name
from penstock.kafka.sink.transactions import (
    Tokens,
    TransactionalSender,
    lend_sender,
    transaction_limit_s,
)

_POLL_S = 0.2
_idle = IdleClients(Sender.close)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a batch's records go."""

    settings: Mapping[str, Any] = field(repr=False)
    topic: str
    """Whose partition 0 tokens are for."""
    name: str
    """``tokens.batch_name`` of the output."""
    batch_id: int


def write_partition(
    to: Destination,
    attempt: int,
    index: int,
    records: Iterator[Outgoing],
    *,
    is_done: bool = False,
) -> int:
    """Write the records of a partition in one transaction, unless they are written already.

    Args:
        to: where they go.
        attempt: the number that ``SinkBatches.begin`` returned.
        index: the partition.
        records: all that it has.
        is_done: whether the attempt found it written: it has to be proved, also without records.

    Returns:
        The number of records that it holds of this batch.

    Raises:
        KafkaFencedError: another attempt took the partition over.
        KafkaError: the brokers refuse or do not answer, the transaction took too long, or the
            partition had other records when it was written.
    """
    first = next(records, None)
    if first is None:
        if not is_done:
            return 0
        first = Outgoing(to.topic, None, [])
    name, is_kept = partition_name(to.name, index), False

    def is_settled(done: Done) -> bool:
        return done.next_id > to.batch_id or done.attempt > attempt

    try:
        with lend_sender(to.settings, to.topic, name, Done, is_settled) as (sender, done):
            is_kept = sender.is_kept
            _check_attempt(to, attempt, done, index)
            if done is not None and done.next_id > to.batch_id:
                return _prove(to, index, done, _with(first, records))
            return _write(to, attempt, sender, _with(first, records))
    except KafkaFencedError:
        if is_kept:  # perhaps by a task that died: Spark tries this one again, with a new producer
            raise
        return _result_of_other(to, attempt, index, name)


def send_partition(settings: Mapping[str, Any], records: Iterator[Outgoing]) -> int:
    """Send records without a transaction: at least once; return their number.

    Raises:
        KafkaError: one cannot be delivered.
    """
    key, count = client_key(settings), 0
    sender = _idle.take(key) or Sender(settings)
    try:
        for some in records:
            sender.send(some)
            count += len(some)
        sender.flush()
    except BaseException:
        sender.close()
        raise
    _idle.keep(key, sender)
    return count


def _write(
    to: Destination, attempt: int, sender: TransactionalSender[Done], records: Iterator[Outgoing]
) -> int:
    tally = Tally()
    sender.begin()
    for some in records:
        sender.send(some)
        tally.add(some)
    token = Done(to.batch_id + 1, attempt, tally.count, tally.checksum, sender.writer)
    sender.commit(token)
    return tally.count


def _prove(to: Destination, index: int, done: Done, records: Iterator[Outgoing]) -> int:
    tally = Tally()
    for some in records:
        tally.add(some)
    if (tally.count, tally.checksum) != (done.count, done.checksum):
        raise failures.other_records(to.name, to.batch_id, index, done.count, tally.count)
    return done.count


def _check_attempt(to: Destination, attempt: int, done: Done | None, index: int) -> None:
    """Raise KafkaError if a later attempt has this partition."""
    if done is not None:
        latest = done.attempt
    else:  # its first batch, or so long ago that the brokers forgot it
        with closing(Tokens(to.settings, to.topic, to.name, Begun)) as tokens:
            begun = tokens.read()
        latest = attempt + 1 if begun is None else begun.attempt
    if latest > attempt:
        raise failures.superseded(to.name, to.batch_id, attempt, index)


def _result_of_other(to: Destination, attempt: int, index: int, name: str) -> int:
    """Wait for the other task that has this partition: Spark runs two when one is slow.

    To fence it in turn would let the two fence each other until Spark gives up. To end before it is
    done would have Spark start a third one.
    """
    deadline_s = time.monotonic() + transaction_limit_s(to.settings)
    with closing(Tokens(to.settings, to.topic, name, Done)) as tokens:
        while True:
            done = tokens.read()
            if done is not None:
                _check_attempt(to, attempt, done, index)
                if done.next_id > to.batch_id:
                    return done.count
            if time.monotonic() > deadline_s:
                raise failures.task_left(name, to.batch_id)
            time.sleep(_POLL_S)


def _with(first: Outgoing, records: Iterator[Outgoing]) -> Iterator[Outgoing]:
    yield first
    yield from records

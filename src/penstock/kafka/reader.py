"""Reads ranges of topics, in executors.

A range is read to its end by position, not by its last record: compaction removes records, and
transactions use offsets up, so the last offsets of a range may have none. librdkafka reports where
it is in a partition when it reaches the partition's end, and with each later record. An end within
a range is that of a log that was cut off since, or a leader's that is behind: others are asked.

A consumer is kept for the next task of the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.errors import KafkaDataLossError, KafkaError
from penstock.kafka.client_conf import client_key, resolve
from penstock.kafka.columns import to_batch
from penstock.kafka.consumer import ConsumerHandle
from penstock.kafka.failures import FINAL, GONE, kafka_error, settings_checked
from penstock.kafka.idle import IdleClients
from penstock.kafka.losses import LOSS_HINT
from penstock.kafka.messages import Messages
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.pass_over import PassOver, find_loss
from penstock.kafka.records import KafkaRecord

Decode = Callable[[bytes], Any] | None
"""Makes a value of the bytes of a key or value; not asked for None, which stays None."""

_Copy = TypeVar("_Copy")
_POLL_S = 0.5
_AGAIN_S = 0.1
PATIENCE_S = 120.0
"""Without anything from the brokers for this long the read fails, as in Spark's source.

Of aborted records the client tells nothing. So the leader is asked whether there is more to read.
"""
_ANSWER_S = 5.0
_log = logging.getLogger(__name__)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check that a client takes its settings; connects to nothing.

    Raises:
        ConfigError: one is unknown or has a wrong value, or a file of a secret cannot be read.
    """
    with settings_checked("configure Kafka client", settings):
        _Client(settings).close()


def read_records(
    settings: Mapping[str, Any], ranges: Iterable[KafkaRange], pass_over: PassOver | None = None
) -> Iterator[KafkaRecord]:
    """Return the records of ranges, in order.

    Args:
        settings: of ``ClientConf.settings``.
        ranges: what to read.
        pass_over: continues after records that are gone.

    Raises:
        KafkaError: the brokers refuse, or do not answer in time.
        KafkaDataLossError: records are no longer there, and there is no ``pass_over``.
    """
    for wanted in chain.from_iterable(each.held() for each in ranges):
        for rows in _read(settings, wanted, partial(_records, wanted), pass_over):
            yield from rows


def read_batches(
    settings: Mapping[str, Any],
    ranges: Iterable[KafkaRange],
    columns: Iterable[str],
    pass_over: PassOver | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the records of ranges as Arrow batches with these columns, in order.

    Raises as ``read_records``.
    """
    columns = tuple(columns)
    for wanted in chain.from_iterable(each.held() for each in ranges):
        yield from _read(settings, wanted, partial(to_batch, columns=columns), pass_over)


def _records(wanted: KafkaRange, messages: Messages) -> Iterator[KafkaRecord]:
    rows = zip(
        messages.keys().to_pylist(),
        messages.values().to_pylist(),
        repeat(wanted.topic),
        repeat(wanted.partition),
        messages.offsets().to_pylist(),
        messages.timestamps_ms().to_pylist(),
        messages.headers(),
        strict=False,
    )
    # Half the time of KafkaRecord(...), which is a function in Python.
    return map(partial(tuple.__new__, KafkaRecord), rows)


class _Client:
    """A consumer, and the last error that it told of its connections."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.error: ClientError | None = None
        conf = {"group.id": "penstock", "check.crcs": True, "isolation.level": "read_committed"}
        # The next range waits until an empty fetch is over; and a full queue is soon read.
        conf |= {"fetch.wait.max.ms": 1, "fetch.queue.backoff.ms": 5}
        # What is fetched beyond the end of a range is thrown away.
        conf |= {"queued.min.messages": 20_000, **resolve(settings)}
        conf |= {
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
        self.consumer = ConsumerHandle(conf, self._note)

    def _note(self, error: ClientError) -> None:
        self.error = error

    def takes_gone(self) -> bool:
        """Return whether it was told that the topic does not exist, and forget that."""
        if is_gone := self.error is not None and self.error.code() in GONE:
            self.error = None
        return is_gone

    def close(self) -> None:
        """End it."""
        self.consumer.close()


_idle = IdleClients(_Client.close)


@contextmanager
def _client(settings: Mapping[str, Any]) -> Iterator[_Client]:
    """Lend a client of this process; one that failed is closed."""
    key = client_key(settings)
    client = _idle.take(key) or _Client(settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with suppress(KafkaException):
        client.consumer.unassign()  # or it goes on fetching
    _idle.keep(key, client)


def _read(
    settings: Mapping[str, Any],
    wanted: KafkaRange,
    copy: Callable[[Messages], _Copy],
    pass_over: PassOver | None,
) -> Iterator[_Copy]:
    """Return copies of a range's messages, some thousand at a time."""
    with _client(settings) as client:
        position = wanted.start_offset
        client.consumer.assign(wanted.topic, wanted.partition, position)
        client.error, heard_s = None, time.monotonic()
        while position < wanted.end_offset:
            with client.consumer.messages(_POLL_S) as messages:
                records = messages.records()
                if len(records):
                    position = records.last_offset + 1
                codes = set()
                for offset, error in messages.errors():
                    codes.add(error.code())
                    if error.code() == ClientError._PARTITION_EOF:
                        position = max(position, offset)
                    elif error.code() in FINAL:
                        raise kafka_error(error, "read topic", settings, **_ids(wanted, position))
                records = records.before(wanted.end_offset)
                copied = copy(records) if len(records) else None
            if copied is None:
                heard_s = _check_patience(settings, wanted, position, client, heard_s)
            else:
                heard_s = time.monotonic()
                yield copied
            # A task that has its records does not fail because the topic is gone.
            is_short = position < wanted.end_offset
            is_gone = is_short and (client.takes_gone() or not codes.isdisjoint(GONE))
            if is_gone or (is_short and ClientError._PARTITION_EOF in codes):
                to = (pass_over or partial(_fail, settings))(wanted, position)
                if to == position:
                    time.sleep(_AGAIN_S)
                if is_gone or to > position:
                    client.consumer.assign(wanted.topic, wanted.partition, to)
                position = to


def _fail(settings: Mapping[str, Any], wanted: KafkaRange, position: int) -> int:
    """Return the position if nothing is lost there; raises KafkaDataLossError otherwise."""
    if (loss := find_loss(settings, wanted, position)) is None:
        return position
    raise KafkaDataLossError(
        f"offset {position} of {wanted.topic}/{wanted.partition} is not in the topic: "
        f"{loss.reason}",
        operation="read topic",
        ids=_ids(wanted, position),
        hint=LOSS_HINT,
    )


def _check_patience(
    settings: Mapping[str, Any], wanted: KafkaRange, position: int, client: _Client, since_s: float
) -> float:
    """Return when something was last heard of the brokers.

    Raises:
        KafkaError: they refuse, or that was too long ago.
    """
    if client.error is not None and client.error.code() in FINAL:
        raise kafka_error(client.error, "read topic", settings, **_ids(wanted, position))
    if time.monotonic() - since_s < PATIENCE_S:
        return since_s
    end = client.consumer.query_end(wanted.topic, wanted.partition, _ANSWER_S)
    if end is not None and end > position:
        _log.info(
            "%s sent no record for %.0f s from %d on, and its leader answers: aborted records are "
            "passed over",
            wanted.name,
            PATIENCE_S,
            position,
        )
        return time.monotonic()
    if end is not None:
        raise KafkaError(
            f"{wanted.name} can be read up to {end} only, since {PATIENCE_S:.0f} s: a transaction "
            "is open there, or its replica is behind",
            operation="read topic",
            ids=_ids(wanted, position),
            hint="see `kafka-transactions.sh find-hanging`; the batch runs again and waits again",
        )
    error = client.error or ClientError(ClientError._TIMED_OUT, "the brokers sent nothing")
    raise kafka_error(error, "read topic", settings, **_ids(wanted, position))


def _ids(wanted: KafkaRange, position: int) -> dict[str, Any]:
    return {
        "topic": wanted.topic,
        "partition": wanted.partition,
        "position": position,
        "end": wanted.end_offset,
    }

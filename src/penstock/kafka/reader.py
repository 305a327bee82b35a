"""Reads ranges of topics, in executors.

A range is read to its end by position, not by its last record: compaction removes records, and
transactions use offsets up, so the last offsets of a range may have none. librdkafka reports where
it is in a partition when it reaches the partition's end, and with each later record. An end within
a range is that of a log that was cut off since, or a leader's that is behind: others are asked.

A consumer is kept for the next task of the process. It is dropped, and not closed: to close waits
for brokers, after a restart of theirs for ever (librdkafka issues 4519 and 4131).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate, chain, repeat
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as Partition

from penstock.errors import KafkaDataLossError, KafkaError
from penstock.kafka.client_conf import OAUTH, client_key, resolve
from penstock.kafka.failures import FINAL, GONE, client_made, kafka_error, settings_checked
from penstock.kafka.idle import IdleClients
from penstock.kafka.losses import LOSS_HINT
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.pass_over import PassOver, find_loss
from penstock.kafka.records import SOURCE_COLUMNS, YEARS_MS, Headers, KafkaRecord

Decode = Callable[[bytes], Any] | None
"""Makes a value of the bytes of a key or value; not asked for None, which stays None."""

_Made = TypeVar("_Made")
_MOST = 10_000
"""Messages that are taken from the client at once."""
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
    conf = _conf(settings)
    conf.pop(OAUTH, None)  # a client would wait for a token
    with settings_checked("configure Kafka client", settings):
        Consumer(conf)


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


def _records(wanted: KafkaRange, messages: Sequence[Message]) -> Iterator[KafkaRecord]:
    rows = zip(
        map(Message.key, messages),
        map(Message.value, messages),
        repeat(wanted.topic),
        repeat(wanted.partition),
        map(Message.offset, messages),
        map(_time_ms, messages),
        map(_headers, messages),
        strict=False,
    )
    # Half the time of KafkaRecord(...), which is a function in Python.
    return map(partial(tuple.__new__, KafkaRecord), rows)


def to_batch(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Return messages as rows of some of ``SOURCE_COLUMNS``."""
    return pa.RecordBatch.from_arrays(
        [_COLUMNS[name](messages) for name in columns], names=list(columns)
    )


def _time_ms(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)


def _headers(message: Message) -> Headers:
    """Return the headers; none, with a warning, if the client cannot decode a name of them.

    Any producer can write a name that is not UTF-8.
    """
    try:
        return tuple(message.headers() or ())  # type: ignore[arg-type]
    except (SystemError, UnicodeDecodeError):
        _log.warning(
            "Record %s of %s/%s has a header whose name is not UTF-8: its headers are left out",
            *(message.offset(), message.topic(), message.partition()),
        )
        return ()


def _column(name: str, cell: Callable[[Message], Any]) -> Callable[[Sequence[Message]], pa.Array]:
    return lambda messages: pa.array(list(map(cell, messages)), SOURCE_COLUMNS[name])


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    times_ms = (_time_ms(message) for message in messages)
    held = [time_ms if time_ms in YEARS_MS else None for time_ms in times_ms]
    return pa.array(held, pa.timestamp("ms", "UTC")).cast(SOURCE_COLUMNS["timestamp"])


def _header_lists(messages: Sequence[Message]) -> pa.Array:
    of_each = list(map(_headers, messages))
    ends = pa.array([0, *accumulate(map(len, of_each))], pa.int32())
    names, values = ([pair[n] for headers in of_each for pair in headers] for n in (0, 1))
    flat = [pa.array(names, pa.string()), pa.array(values, pa.binary())]
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(flat, ["key", "value"]))


_COLUMNS: dict[str, Callable[[Sequence[Message]], pa.Array]] = {
    "key": _column("key", Message.key),
    "value": _column("value", Message.value),
    "topic": _column("topic", Message.topic),
    "partition": _column("partition", Message.partition),
    "offset": _column("offset", Message.offset),
    "timestamp": _timestamps,
    # Java's client numbers it from 0 on.
    "timestampType": _column("timestampType", lambda message: message.timestamp()[0] - 1),
    "headers": _header_lists,
}


def _conf(settings: Mapping[str, Any]) -> dict[str, Any]:
    conf = {"group.id": "penstock", "check.crcs": True, "isolation.level": "read_committed"}
    # The next range waits until an empty fetch is over; and a full queue is soon read.
    conf |= {"fetch.wait.max.ms": 1, "fetch.queue.backoff.ms": 5}
    # What is fetched beyond the end of a range is thrown away.
    conf |= {"queued.min.messages": 20_000, **resolve(settings)}
    return conf | {
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }


class _Client:
    """A consumer, and the last error that it told of its connections."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.error: ClientError | None = None
        conf = {**_conf(settings), "error_cb": self._note}
        with client_made(settings, conf):
            self.consumer = Consumer(conf)

    def _note(self, error: ClientError) -> None:
        self.error = error

    def takes_gone(self) -> bool:
        """Return whether it was told that the topic does not exist, and forget that."""
        if is_gone := self.error is not None and self.error.code() in GONE:
            self.error = None
        return is_gone

    def take(self) -> tuple[list[Message], list[tuple[int, ClientError]]]:
        """Return what has come, or comes within a time: records; errors with the offset there.

        That a partition ends is an error, too.
        """
        # A call for many would wait until it has so many.
        if taken := self.consumer.consume(1, _POLL_S):
            taken += self.consumer.consume(_MOST, 0)
        found = list(map(Message.error, taken))
        if not any(found):
            return taken, []
        pairs = list(zip(taken, found, strict=True))
        errors = [(message.offset() or 0, error) for message, error in pairs if error is not None]
        return [message for message, error in pairs if error is None], errors

    def close(self) -> None:
        """End it; nothing else may be called after it."""
        del self.consumer


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
    make: Callable[[Sequence[Message]], _Made],
    pass_over: PassOver | None,
) -> Iterator[_Made]:
    """Return what is made of a range's messages, some thousand at a time."""
    with _client(settings) as client:
        position = wanted.start_offset
        client.consumer.assign([Partition(wanted.topic, wanted.partition, position)])
        client.error, heard_s = None, time.monotonic()
        while position < wanted.end_offset:
            messages, errors = client.take()
            for offset, error in errors:
                if error.code() == ClientError._PARTITION_EOF:
                    position = max(position, offset)
                elif error.code() in FINAL:
                    raise kafka_error(error, "read topic", settings, **_ids(wanted, position))
            position = max(position, _end(messages))
            if position > wanted.end_offset:
                messages = [each for each in messages if _end([each]) <= wanted.end_offset]
            if messages:
                heard_s = time.monotonic()
                yield make(messages)
            else:
                heard_s = _check_patience(settings, wanted, position, client, heard_s)
            # A task that has its records does not fail because the topic is gone.
            codes = {error.code() for _, error in errors}
            is_short = position < wanted.end_offset
            is_gone = is_short and (client.takes_gone() or not codes.isdisjoint(GONE))
            if is_gone or (is_short and ClientError._PARTITION_EOF in codes):
                to = (pass_over or partial(_fail, settings))(wanted, position)
                if to == position:
                    time.sleep(_AGAIN_S)
                if is_gone or to > position:
                    client.consumer.assign([Partition(wanted.topic, wanted.partition, to)])
                position = to


def _end(messages: Sequence[Message]) -> int:
    return 1 + (messages[-1].offset() or 0) if messages else 0


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
    end: int | None = None
    with suppress(KafkaException):
        place = Partition(wanted.topic, wanted.partition)
        end = (client.consumer.get_watermark_offsets(place, _ANSWER_S) or (0, None))[1]
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

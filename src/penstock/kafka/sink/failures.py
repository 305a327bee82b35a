"""Why the sink writes no more, as errors: what happened, what it means, what to do. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.errors import ConcurrentDriverError, KafkaError, KafkaFencedError, PenstockError

OPERATION = "write to Kafka"
_COPY = "if another driver runs on a copy of the checkpoint location, stop one of the two"
_OLDER = (
    "the checkpoint location was restored from an older copy, or another driver runs on a copy of "
    "it; only one of them may write to this sink"
)
_Error = TypeVar("_Error", bound=PenstockError)


class KafkaStuckError(KafkaError):
    """The client did not return: its producer is lost, and what it did not commit is aborted."""


def driver_fenced(sink: str) -> ConcurrentDriverError:
    """Return the error of a driver whose producer was fenced."""
    return _error(
        ConcurrentDriverError,
        "another driver has taken over this output",
        "stop one of the two; a copied checkpoint location has the same id",
        sink=sink,
    )


def task_fenced(transaction: str) -> KafkaFencedError:
    """Return the error of a task whose producer was fenced."""
    return _error(
        KafkaFencedError,
        "another producer took over this partition of a sink",
        f"another attempt at the batch writes it; {_COPY}",
        transaction=transaction,
    )


def task_left(transaction: str, batch_id: int) -> KafkaFencedError:
    """Return the error of a task that waited in vain for the one that fenced it."""
    return _error(
        KafkaFencedError,
        "another task took this partition over, and did not write it",
        "Spark tries the task again",
        transaction=transaction,
        batch=batch_id,
    )


def superseded(sink: str, batch_id: int, attempt: int, index: int) -> KafkaError:
    """Return the error of a task that finds a later attempt's number."""
    return _error(
        KafkaError,
        f"attempt {attempt} at batch {batch_id} was superseded by another one",
        f"a later attempt writes the batch; {_COPY}",
        sink=sink,
        partition=index,
    )


def overtaken(sink: str, batch_id: int, begun_id: int) -> KafkaError:
    """Return the error of a batch before one that the sink has begun."""
    return _error(
        KafkaError,
        f"batch {batch_id} is to be written, but the sink has begun batch {begun_id}",
        _OLDER,
        sink=sink,
    )


def emptied(sink: str, batch_id: int, partitions: int) -> KafkaError:
    """Return the error of a batch that the sink has begun, and that is planned anew as empty."""
    return _error(
        KafkaError,
        f"batch {batch_id} is empty, but the sink has begun it with {partitions} partitions: a "
        "later batch would double their records",
        _OLDER,
        sink=sink,
    )


def forgotten(sink: str, topic: str, batch_id: int) -> KafkaError:
    """Return the error of a batch that may be written, and has no token."""
    return _error(
        KafkaError,
        f"batch {batch_id} runs again, and the brokers do not know any more which part of it was "
        "written: the sink's tokens have expired, or its topic was deleted",
        "see whether the topic has the batch, and docs/kafka.md for what to do then; "
        "offsets.retention.minutes must be above the longest time that the program is down",
        group=sink,
        topic=topic,
    )


def other_partitions(sink: str, batch_id: int, done: int, before: int, now: int) -> KafkaError:
    """Return the error of a batch that is written in part, and is divided in another way."""
    return _error(
        KafkaError,
        f"batch {batch_id} had {before} partitions, of which {done} are written, and has {now} "
        "now: which records are missing cannot be told",
        "start the same program with as many slots as before (spark.default.parallelism decides "
        "how shuffles are divided); docs/kafka.md says what to do",
        sink=sink,
    )


def other_records(sink: str, batch_id: int, index: int, before: int, now: int) -> KafkaError:
    """Return the error of a partition that is written, and has other records."""
    return _error(
        KafkaError,
        f"partition {index} of batch {batch_id} was written with {before} records, and has {now} "
        "different ones now: continuing would lose and repeat records",
        "a batch that runs again must have the same records in the same partitions: no random "
        "numbers, no clock, and as many slots as before (spark.default.parallelism); "
        "docs/kafka.md says what to do",
        sink=sink,
    )


def too_long(transaction: str, taken_s: float, limit_s: float) -> KafkaError:
    """Return the error of a transaction that the brokers abort."""
    return _error(
        KafkaError,
        f"a transaction was open for {taken_s:.0f} s, and the brokers abort it after {limit_s:g} s",
        "give transaction.timeout.ms in the sink's conf (the brokers allow up to their "
        "transaction.max.timeout.ms), smaller batches, or more partitions",
        transaction=transaction,
    )


def stuck(transaction: str, waited_s: float) -> KafkaStuckError:
    """Return the error of a request that does not end when its own time is up."""
    return _error(
        KafkaStuckError,
        f"the Kafka client did not return within {waited_s:g} s, though its own time limit is "
        "shorter",
        "nothing was committed; the task is tried again, with a new producer",
        transaction=transaction,
    )


def _error(kind: type[_Error], message: str, hint: str, **ids: Any) -> _Error:
    return kind(message, operation=OPERATION, ids=ids, hint=hint)

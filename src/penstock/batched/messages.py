"""Reads what a batch takes of a partition, where its functions run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.batched.checkpoints import note_read
from penstock.batched.sources import GO_ON
from penstock.errors import KafkaDataLossError
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.reader import read_batches
from penstock.storage import Storage, attach_storage


def get_message_batch(
    kafka_params: Mapping[str, Any],
    topic: str,
    partition: int,
    low: int,
    high: int,
    checkpoint_path: str | os.PathLike[str] | None = None,
    *,
    keys: bool = False,
) -> list[Any]:
    """Return the records of a partition from offset ``low`` to ``high``, both included.

    With ``checkpoint_path`` it then sets the dirty bit there and writes the partition's log, so
    that the offsets can get into a checkpoint when they are done.

    Args:
        kafka_params: settings of librdkafka.
        topic: the topic's name.
        partition: the partition's number.
        low: the first offset.
        high: the last offset.
        checkpoint_path: of the program, if it has one.
        keys: return ``{"key": bytes | None, "value": bytes | None}`` for each record instead of the
            value alone.

    Raises:
        KafkaError: the brokers refuse, or do not answer in time.
        KafkaDataLossError: records are no longer there.
        StorageError: the dirty bit or the log could not be written.
    """
    columns = ("key", "value") if keys else ("value",)
    wanted = KafkaRange(topic, partition, low, high + 1)
    messages: list[Any] = []
    try:
        for batch in read_batches(kafka_params, [wanted], columns):
            messages += batch.to_pylist() if keys else batch.column(0).to_pylist()
    except KafkaDataLossError as error:
        error.hint = GO_ON
        raise
    if checkpoint_path is not None:
        note_read(_attached(os.fspath(checkpoint_path)), topic, partition, wanted.end_offset)
    return messages


@lru_cache(maxsize=8)
def _attached(path: str) -> Storage:
    return attach_storage(path).without_sync()

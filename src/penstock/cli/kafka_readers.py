"""What reads topics, by the files of one folder: sources, inputs, batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.batched.inspection import inspect_path, is_checkpoint_path
from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.offsets import is_of_topics, topic_parts
from penstock.errors import ConfigError
from penstock.model import Offsets

_INPUTS = "spark.penstock.inputs"


@dataclass(frozen=True, slots=True)
class Reader:
    """One of them."""

    name: str
    """The input's name in a penstock program, the source's number in a query."""
    ends: Offsets
    """The end of each partition, by ``topic/partition``."""
    at: str
    """What its offsets are of, in words."""


def find_readers(place: str) -> list[Reader]:
    """Return what reads topics, by the newest batch.

    Raises:
        ConfigError: there is nothing, or no such folder.
        PenstockError: its files cannot be read.
    """
    if is_checkpoint_path(place):
        readers = _in_checkpoint_path(place)
    else:
        checkpoint = Checkpoint.open(place)
        batches = checkpoint.batches(checkpoint.planned[-1:])
        readers = [reader for batch in batches for reader in _of_batch(batch, checkpoint.url)]
    if not readers:
        raise ConfigError(
            "there are no Kafka offsets",
            operation="find Kafka offsets",
            path=place,
            hint="give the checkpoint location of a query or program that has planned a batch, or "
            "the checkpoint_path of from_kafka_batched",
        )
    return readers


def _of_batch(batch: Batch, url: str) -> Iterator[Reader]:
    if batch.offsets is None:
        raise ConfigError(
            f"the newest batch, {batch.batch_id}, cannot be read",
            operation="find Kafka offsets",
            path=url,
            hint="see `penstock checkpoint validate`",
        )
    names: list[Any] = json.loads(batch.conf.get(_INPUTS, "[]")) if is_of_penstock(batch) else []
    at = f"batch {batch.batch_id}" + ("" if batch.committed else ", not done")
    for number, (source, offset) in enumerate(batch.end_offsets.items()):
        if is_of_topics(offset):
            name = str(names[number]) if number < len(names) else source
            yield Reader(name, topic_parts(offset), at)


def _in_checkpoint_path(place: str) -> list[Reader]:
    found = inspect_path(place)
    newest = {each.topic: each for each in found.topics if each.newest is not None}
    ends = {f"{t}/{p}": last + 1 for t, each in newest.items() for p, last in each.done.items()}
    at = ", ".join(f"{topic}/{each.newest}.txt" for topic, each in newest.items())
    return [Reader("batches", ends, at)] if ends else []

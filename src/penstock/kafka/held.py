"""The Kafka offsets that a checkpoint location holds: penstock's direct streams, Spark's source.

Both write ``{"clicks":{"0":246189}}`` into the offset log; in penstock's, a topic that was created
anew is ``clicks@1``, of which the last one counts. Nothing is written here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.offsets import is_of_topics
from penstock.errors import ConfigError
from penstock.kafka.generations import Generations
from penstock.kafka.identified import IdentifiedOffsets
from penstock.model import Offsets
from penstock.storage import attach_storage

_INPUTS = "spark.penstock.inputs"


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """How far a query or program is in topics, by its newest batch."""

    source: str
    """What ``rewind --to-offsets`` calls the source."""
    name: str
    """The input's name in a penstock program; else the same."""
    batch_id: int
    is_done: bool
    """Whether the batch is committed: else it runs again, up to the same offsets."""
    offset: Mapping[str, Mapping[str, int]]
    """As the offset log has it."""

    @property
    def ends(self) -> dict[str, int]:
        """The end of each partition, by ``topic/partition``."""
        return {part: self.offset[key][p] for part, (key, p) in self.keys.items()}

    @property
    def keys(self) -> dict[str, tuple[str, str]]:
        """Where the end of each partition stands in ``offset``."""
        topics = sorted(self.offset, key=_generation)
        return {f"{_topic(key)}/{p}": (key, p) for key in topics for p in self.offset[key]}

    def moved_to(self, ends: Offsets) -> dict[str, dict[str, int]]:
        """Return the offset with other ends for some partitions."""
        moved = {key: dict(partitions) for key, partitions in self.offset.items()}
        for part, end in ends.items():
            key, partition = self.keys[part]
            moved[key][partition] = end
        return moved


def held_offsets(place: str | os.PathLike[str]) -> list[HeldOffsets]:
    """Return the Kafka offsets of a location's newest batch; none if it has no batch yet.

    Raises:
        ConfigError: there is no checkpoint location.
        StorageError: it cannot be read.
    """
    checkpoint = Checkpoint.open(place)
    batches = checkpoint.batches(checkpoint.planned[-1:])
    return [held for batch in batches for held in _held(batch, checkpoint.url)]


def identified(place: str | os.PathLike[str], held: HeldOffsets) -> IdentifiedOffsets:
    """Return offsets with the ids of the topics that they were read in, as they are noted.

    Raises:
        LogFormatError: the notes are damaged.
        StorageError: they cannot be read.
    """
    notes = Generations(attach_storage(place), held.name)
    ids: dict[str, str] = {}
    for key in sorted(held.offset, key=_generation):
        if topic_id := notes.id_of(_topic(key), _generation(key)):
            ids[_topic(key)] = topic_id
        else:
            ids.pop(_topic(key), None)  # of an earlier generation
    return IdentifiedOffsets(held.ends, ids)


def noted_ids(place: str | os.PathLike[str]) -> dict[str, str]:
    """Return the ids of the topics that the newest batch was read in, of all that are noted.

    Raises as ``identified``.
    """
    try:
        newest = held_offsets(place)
    except ConfigError:  # it is altered, and passed over
        return {}
    return {t: each for held in newest for t, each in identified(place, held).ids.items()}


def _held(batch: Batch, url: str) -> Iterator[HeldOffsets]:
    if batch.offsets is None:
        raise ConfigError(
            f"the newest batch, {batch.batch_id}, cannot be read",
            operation="read Kafka offsets",
            path=url,
            hint="see `penstock checkpoint validate`",
        )
    names: list[Any] = json.loads(batch.conf.get(_INPUTS, "[]")) if is_of_penstock(batch) else []
    for place, (source, offset) in enumerate(batch.end_offsets.items()):
        if is_of_topics(offset):
            name = str(names[place]) if place < len(names) else source
            yield HeldOffsets(source, name, batch.batch_id, batch.committed, offset)


def _topic(key: str) -> str:
    return key.partition("@")[0]


def _generation(key: str) -> int:
    return int(key.partition("@")[2] or 0)

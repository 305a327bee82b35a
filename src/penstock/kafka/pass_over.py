"""What a task does when records of its range are gone: it notes them as lost, and reads on.

So a batch that runs again has the same records, also if its partition has others at these offsets
meanwhile: a log that was cut off, and grew again. Those are read after the planner has noticed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.errors import KafkaError
from penstock.kafka.cut_off import cut_off, is_deleted
from penstock.kafka.losses import LossLog, LostRange
from penstock.kafka.offsets import KafkaRange, partition_name
from penstock.kafka.topics import Topics


@dataclass(frozen=True, slots=True)
class PassOver:
    """Continues after records that a task finds gone; ``read_records`` calls it."""

    settings: Mapping[str, Any] = field(repr=False)
    """Of ``ClientConf.settings``, with secrets."""
    log: LossLog
    to_latest: bool
    """Whether the rest of the range is passed over, too."""

    def __call__(self, wanted: KafkaRange, position: int) -> int:
        """Return where the range is read on, when what is lost before that is in the loss log.

        Raises:
            KafkaError: as ``find_loss``.
            StorageError: the loss cannot be noted.
        """
        loss = find_loss(self.settings, wanted, position)
        if loss is None:
            return position
        to = wanted.end_offset if self.to_latest else loss.end_offset
        self.log.add([replace(loss, end_offset=to)])
        return to


def find_loss(settings: Mapping[str, Any], wanted: KafkaRange, position: int) -> LostRange | None:
    """Return what is lost of a range from a position on; None if its leader changed, say.

    Args:
        settings: of ``ClientConf.settings``.
        wanted: the range.
        position: the offset that its partition does not have, or does not have yet.

    Raises:
        KafkaError: the brokers do not say where the partition begins and ends.
    """
    topics, topic = Topics(settings, [wanted.topic]), wanted.topic
    name = partition_name(topic, wanted.partition)
    rest = partial(_lost, wanted, position)
    if is_deleted(topics, topic):
        return rest(wanted.end_offset, ": the topic was deleted")
    begins = topics.scan().begins
    if name not in begins:
        raise KafkaError(
            f"{name} was not among the partitions of {topic} when it was asked for",
            operation="read topic",
            ids={"topic": topic, "partition": wanted.partition},
            hint="nothing, if it happens once: the task is tried again",
        )
    if position < begins[name]:
        return rest(min(begins[name], wanted.end_offset), "")
    if cut_off(topics, {name: position + 1}):
        return rest(wanted.end_offset, ": its log was cut off")
    return None


def _lost(wanted: KafkaRange, start: int, end: int, why: str) -> LostRange:
    what = f"records [{start}, {end}) of {wanted.name} were gone when a batch read them{why}"
    return LostRange(wanted.name, start, end, what)

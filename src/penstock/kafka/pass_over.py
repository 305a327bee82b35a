"""What a task does when records of its range are gone: it notes them as lost, and reads on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import KafkaError
from penstock.kafka.cut_off import cut_off
from penstock.kafka.losses import LossLog, LostRange
from penstock.kafka.offsets import KafkaRange, partition_name
from penstock.kafka.topics import Topics

__all__ = ["PassOver"]

_AGAIN_S = 0.1


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

        Args:
            wanted: the range.
            position: the offset that its partition does not have.

        Raises:
            KafkaError: the brokers do not say where the partition begins.
            StorageError: the loss cannot be noted.
        """
        topics = Topics(self.settings, [wanted.topic])
        facts = topics.scan()
        name = partition_name(wanted.topic, wanted.partition)
        if name not in facts.ends:
            raise KafkaError(
                f"{name} was not among the partitions of {wanted.topic} when it was asked for",
                operation="read topic",
                ids={"topic": wanted.topic, "partition": wanted.partition},
                hint="nothing, if it happens once: the task is tried again",
            )
        begin, end = facts.begins[name], facts.ends[name]
        is_cut_off = position > end and bool(cut_off(topics, {name: position}))
        if begin <= position and not is_cut_off:
            time.sleep(_AGAIN_S)
            return position  # its leader changed, say
        is_over = is_cut_off or self.to_latest
        to = wanted.end_offset if is_over else min(begin, wanted.end_offset)
        what = f"records [{position}, {to}) of {wanted.name} were gone when a batch read them"
        self.log.add([LostRange(wanted.name, position, to, what)])
        return to

"""Ranges of topics that a stream passed over, in a loss log as a journal's streams have it.

    sources/<input>/losses/<topic>-<partition>.<start>-<end>.json

Invariants (those of ``penstock.journal.losses.loss_log`` hold, but for its second):

1. An entry is durable before the batch that passes over its range: planning writes it before
   ``offsets/N``, a task before it reads on, and so before ``commits/N``.
2. Only what no entry holds is added, so a range that is found lost again, after a kill at any step
   or by another task, is not noted twice.
3. A batch that runs again leaves out what is in the log, also with ``on_data_loss="latest"``, which
   passes over records that could be read.
4. When a log was cut off, what entries have behind its new end will be other records: after the
   batches that these entries belong to, they are kept as those of ``<topic>-<partition>~cut``, for
   people.

An entry without records (``start`` is ``end``) says that what followed is lost, and not how much
that was: the log was cut off.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from penstock.errors import AlreadyExistsError
from penstock.journal.losses.loss_log import (
    Lost,
    create_loss,
    end_after_losses,
    loss_now,
    loss_path,
    lost_ranges,
    source_folder,
    without_lost,
)
from penstock.kafka.offsets import KafkaRange
from penstock.model import OffsetRange, Offsets
from penstock.storage import Storage

LOSS_HINT = (
    "records were deleted before they were read: give the topic a longer retention; "
    "on_data_loss='earliest' or 'latest' continues after what is lost, and notes each range in the "
    "loss log"
)
_log = logging.getLogger(__name__)
_LONG = 150
"""A file's name has 255 bytes, and a topic's up to 249."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets of a partition that a stream does not read, and why."""

    name: str
    """The partition in a flat offset map."""
    start_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class LossLog:
    """The loss log of an input: on the driver, and in tasks."""

    storage: Storage
    """The checkpoint location."""
    stream: str

    def read(self) -> Lost:
        """Return the lost ranges; one listing."""
        return lost_ranges(self.storage, source_folder(self.stream))

    def add(self, losses: Iterable[LostRange]) -> None:
        """Make durable what of these ranges is not in the log.

        Raises:
            StorageError: it cannot be written; the call may be repeated.
        """
        known, folder = self.read(), source_folder(self.stream)
        for loss in losses:
            whole = OffsetRange(loss_partition(loss.name), loss.start_offset, loss.end_offset)
            for part in without_lost([whole], known) if whole.count else [whole]:
                with suppress(AlreadyExistsError):
                    create_loss(self.storage, folder, loss_now(part, loss.reason))
                    _log.warning("Stream %s: %s", self.stream, loss.reason)

    def cut_off(self, ends: Offsets) -> None:
        """Have what comes at the ends of partitions read, whose logs were cut off there.

        Raises:
            StorageError: an entry cannot be moved; the call may be repeated.
        """
        known, folder = self.read(), source_folder(self.stream)
        for partition, end in {loss_partition(name): end for name, end in ends.items()}.items():
            for old in known.get(partition, ()):
                if old.end_offset > end:
                    path, kept = loss_path(folder, old), replace(old, partition=f"{partition}~cut")
                    with suppress(AlreadyExistsError):
                        self.storage.create(loss_path(folder, kept), self.storage.read(path))
                    self.storage.delete(path)


def leave_out(ranges: Iterable[KafkaRange], lost: Lost) -> list[KafkaRange]:
    """Return the same ranges, which are read without what is in a loss log."""
    found = []
    for each in ranges:
        whole = OffsetRange(loss_partition(each.name), each.start_offset, each.end_offset)
        left = [(part.start_offset, part.end_offset) for part in without_lost([whole], lost)]
        edges = [each.start_offset, *chain.from_iterable(left), each.end_offset]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        found.append(replace(each, lost=tuple((s, e) for s, e in gaps if s < e)))
    return found


def reached(position: Offsets, lost: Lost) -> Offsets:
    """Return the offsets behind what is lost from a position on."""
    return {name: end_after_losses(loss_partition(name), at, lost) for name, at in position.items()}


def loss_partition(name: str) -> str:
    """Return what the loss log calls a partition: ``clicks-0``."""
    topic, _, partition = name.rpartition("/")
    if len(topic) > _LONG:
        topic = f"{topic[:_LONG]}~{hashlib.sha256(topic.encode()).hexdigest()[:12]}"
    return f"{topic}-{partition}"

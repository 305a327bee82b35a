"""``reset`` of a query or program: other offsets, and what its input noted of those after them.

A penstock input leaves out what its loss log holds (``losses``), also where the topic still has it:
with ``on_data_loss="latest"``. A reset says that records are read from an offset on, so what the
log holds from there on does not count any more, and is removed by the same plan: its undo file
keeps it. A query over ``format("penstock-kafka")`` leaves the same out, by the log that its option
``lossLog`` names: of one in another folder than the checkpoint location nothing is known here.

Offsets of a topic that was created anew are of the old one. A program notes that, and where the new
one begins, when it plans a batch; until then no offset in its log means the new topic.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.checkpoint.tools import Plan, plan_rewind
from penstock.checkpoint.tools.changes.plan import FileChange
from penstock.errors import KafkaDataLossError
from penstock.journal.losses.loss_log import loss_path, lost_ranges, source_folder
from penstock.kafka.held import HeldOffsets, identified
from penstock.kafka.identified import TopicIds
from penstock.kafka.losses import loss_partition
from penstock.kafka.reset import Move
from penstock.model import OffsetRange
from penstock.storage import Storage, attach_storage


def plan_reset(
    place: str | os.PathLike[str],
    held: HeldOffsets,
    moves: Sequence[Move],
    topic_ids: TopicIds,
) -> Plan:
    """Plan that a query or program continues where partitions move to.

    Args:
        place: path or URL of the checkpoint location.
        held: where it is.
        moves: the partitions that move.
        topic_ids: the ids that their topics have now.

    Raises:
        KafkaDataLossError: one of the topics was created anew since.
        ConfigError, CheckpointError: as ``plan_rewind``.
    """
    storage = attach_storage(place)
    ids = identified(place, held).ids  # of the topics that the offsets are of, which may be earlier
    if gone := [t for t, now in sorted(topic_ids.items()) if now and ids.get(t, now) != now]:
        raise KafkaDataLossError(
            f"topic {', '.join(gone)} was deleted and created anew since the newest batch: the "
            "offsets of the program are those of the old topic",
            operation="reset offsets",
            path=storage.url,
            hint="run the program with on_data_loss='earliest' (a query: onDataLoss) until it has "
            "read a batch: it continues with the new topic's first record",
        )
    ends = {move.partition: move.end for move in moves}
    plan = plan_rewind(
        place,
        to_offsets={held.source: held.moved_to(ends)},
        may_skip=True,
        are_held=_were_checked,
    )
    if not plan.changes:
        return plan
    names = {"/".join(held.keys[part]): end for part, end in ends.items()}
    changes = tuple(_without_losses(storage, source_folder(held.name), names))
    if not changes:
        return plan
    meaning = "the loss log holds nothing more of what is read from there on"
    return replace(plan, meaning=(*plan.meaning, meaning), changes=(*changes, *plan.changes))


def _were_checked(begins: Mapping[str, int]) -> None:
    """Accept offsets: ``plan_moves`` has asked the brokers for those that change."""


def _without_losses(
    storage: Storage, folder: str, starts: Mapping[str, int]
) -> Iterator[FileChange]:
    """Yield what ends the entries of the loss log where partitions start."""
    log = lost_ranges(storage, folder)
    for name, start in starts.items():
        for lost in log.get(loss_partition(name), ()):
            if lost.end_offset > start:
                yield from _cut_off(storage, folder, lost, start)


def _cut_off(storage: Storage, folder: str, lost: OffsetRange, end: int) -> Iterator[FileChange]:
    """Yield what removes a range from the loss log; what it has before an offset stays."""
    path = loss_path(folder, lost)
    entry = storage.read(path)
    if lost.start_offset < end:
        left = replace(lost, end_offset=end)
        kept = {**json.loads(entry), "end": end, "records": left.count}
        data = json.dumps(kept, indent=2, ensure_ascii=False).encode()
        yield FileChange(loss_path(folder, left), None, data, "what is lost before the offset")
    yield FileChange(path, entry, None, "its records are read")

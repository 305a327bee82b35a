"""Other offsets for a penstock program: its Kafka inputs continue from there.

A driver begins where the newest entry of the offset log ends, if that batch is done. So a batch is
appended to both logs, under the next id, that ends at the wanted offsets and reads nothing. A
program that still runs plans the same id, finds it taken, and ends.

Only offsets of topics are moved: a journal keeps its records by the entries, and by what consumers
commit, so those of its streams only grow (see rewind_own).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.checkpoint.tools.batches import batch_paths
from penstock.checkpoint.tools.changes.available import TopicCheck
from penstock.checkpoint.tools.changes.entries import encode_commit, encode_offsets
from penstock.checkpoint.tools.changes.files import new_file
from penstock.checkpoint.tools.changes.plan import Plan
from penstock.checkpoint.tools.changes.position import Position, refusal
from penstock.checkpoint.tools.changes.rewind_own import plan_own_rewind, refuse_state
from penstock.checkpoint.tools.changes.targets import check_offsets
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.offsets import is_of_topics, moved

_BATCH_INTERVAL = "spark.penstock.batchIntervalMs"


def plan_own_offsets(
    checkpoint: Checkpoint,
    position: Position,
    command: str,
    wanted: Mapping[str, Any],
    are_held: TopicCheck | None = None,
) -> Plan:
    """Plan that Kafka inputs continue from other offsets.

    Raises:
        ConfigError: an offset is of another form than the newest, or after it.
        CheckpointError: an input is not a Kafka topic, the program keeps state, or its newest batch
            is not done.
        KafkaError: what ``are_held`` raises.
    """
    ends = position.newest.end_offsets
    if not all(is_of_topics(ends[source]) for source in wanted if source in ends):
        return plan_own_rewind(checkpoint, position, command, None)  # refuses any offsets
    sources = check_offsets(checkpoint, position, wanted)
    newest = (checkpoint.planned[-1], checkpoint.committed[-1])
    if not position.is_done:
        raise refusal(
            checkpoint,
            f"batch {newest[0]} is planned and not done: the program runs it again when it starts",
            "start the program, and end it gracefully after a batch",
        )
    refuse_state(checkpoint, position)
    if are_held is not None:
        for offset in wanted.values():
            are_held(offset)
    if sources == position.offsets.sources:
        nothing = "the program stands there already: there is nothing to change"
        return Plan(checkpoint.url, command, (nothing,), (), newest)
    interval_ms = int(position.newest.conf.get(_BATCH_INTERVAL, 1))
    time_ms = (position.newest.time_ms or 0) + interval_ms
    offsets_path, commit_path = batch_paths(position.next_id)
    offsets = encode_offsets(position.offsets, sources, {"batchTimestampMs": time_ms})
    changes = (
        *new_file(checkpoint, offsets_path, offsets, "these offsets"),
        *new_file(checkpoint, commit_path, encode_commit(position.commit, {}), "the batch is done"),
    )
    meaning = tuple(_meaning(checkpoint, position, wanted))
    return Plan(checkpoint.url, command, meaning, changes, newest)


def _meaning(
    checkpoint: Checkpoint, position: Position, wanted: Mapping[str, Any]
) -> Iterator[str]:
    batch_id = position.next_id
    yield f"batch {batch_id} reads nothing; batch {batch_id + 1} runs next, and begins there"
    for source, offset in wanted.items():
        by = moved(position.newest.end_offsets[source], offset) or 0
        yield f"source {source}: {by:+,} offsets in all"
    if any("/losses/" in path for path in checkpoint.files):
        yield (
            "what the loss log has is passed over again (`penstock journal losses`): delete the "
            "entries whose records are to be read"
        )
    yield "windows still hold what they have; an output gets records that are read again twice"

"""``rewind`` of a penstock program: batches run again under their ids, with the same records.

A driver runs every batch that is planned and not committed, with the offsets in its entry. So the
commits after the point are removed. Its journal keeps records by these entries, and its outputs
recognize these ids, so entries with other offsets must not be appended here.

A commit that is written again is the same bytes, so the logs do not tell whether a driver has
started since. The file ``rewound`` does: the change creates it, and a driver removes it before it
runs a batch again. Without it, and with commits gone, the change is not taken back (invariant 6 of
penstock.checkpoint.tools.changes.apply).

Source: penstock.checkpoint.recovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.checkpoint.batch_ids import describe_ids
from penstock.checkpoint.rollback import REWOUND
from penstock.checkpoint.tools.batches import batch_paths
from penstock.checkpoint.tools.changes.available import TopicCheck, check_files, check_topics
from penstock.checkpoint.tools.changes.files import removed_file
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.position import Position, misfit, refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint, describe_kept
from penstock.checkpoint.tools.lag import JOURNAL
from penstock.checkpoint.tools.offsets import files_of, is_of_topics, streams_of, topic_parts
from penstock.checkpoint.used_sinks import outputs_with_sinks
from penstock.errors import MissingBlockError, StorageError
from penstock.journal import JournalStream, ranges_between, stream_names
from penstock.journal.reader import slice_ranges
from penstock.storage import Storage, attach_storage

_OPERATORS = "spark.penstock.operators"
_OUTPUTS = "spark.penstock.outputs"


def plan_own_rewind(
    checkpoint: Checkpoint,
    position: Position,
    command: str,
    batch_id: int | None,
    are_held: TopicCheck | None = None,
) -> Plan:
    """Plan that the batches after one run again; None stands for any offsets, which are refused.

    Raises:
        ConfigError: the location does not keep the batch.
        CheckpointError: the program keeps state, or writes to exactly-once sinks, or some of the
            records are gone.
        KafkaError: what ``are_held`` raises.
    """
    if batch_id is None:
        raise refusal(
            checkpoint,
            "a penstock program runs its batches again as they were planned, not from any offsets",
            "give a batch or a time",
        )
    planned, committed = checkpoint.kept_ids(position.newest)
    if batch_id not in planned:
        raise misfit(
            checkpoint.url,
            f"batch {batch_id} is not kept, so it is not known where the next one begins",
            describe_kept(planned),
        )
    refuse_state(checkpoint, position)
    _refuse_sinks(checkpoint)
    newest = (checkpoint.planned[-1], checkpoint.committed[-1])
    again = [each for each in committed if batch_id < each <= planned[-1]]
    changes = [
        change
        for each in reversed(again)  # so that without the barrier, too, every step is a valid log
        for change in removed_file(checkpoint, batch_paths(each)[1], "its batch runs again")
    ]
    if not changes:
        nothing = "the batches after it run again in any case: there is nothing to change"
        return Plan(checkpoint.url, command, (nothing,), (), newest)
    mark = checkpoint.read([REWOUND]).get(REWOUND)
    if isinstance(mark, StorageError):
        raise mark
    why = "the mark of a rewind; the program's next start removes it, and then there is no undo"
    changes.append(FileChange(REWOUND, mark, b"", why))
    meaning = tuple(_meaning(checkpoint, planned, committed, batch_id, are_held))
    return Plan(checkpoint.url, command, meaning, tuple(changes), newest)


def _meaning(
    checkpoint: Checkpoint,
    planned: list[int],
    committed: list[int],
    batch_id: int,
    are_held: TopicCheck | None,
) -> Iterator[str]:
    rerun = [each for each in planned if each > batch_id or each not in committed]
    yield (
        f"batches {describe_ids(rerun)} run again, under their ids and with the same"
        " records; new ones follow"
    )
    start, *batches = checkpoint.batches([batch_id, *(each for each in planned if each > batch_id)])
    for source, place in batches[-1].end_offsets.items():
        begin = start.end_offsets.get(source)
        ends = [begin, *(each.end_offsets.get(source) for each in batches)]
        files = [file for one, end in pairwise(ends) if end != one for file in files_of(end)]
        if files:
            yield f"source {source}: {check_files(checkpoint, source, files)}"
        if is_of_topics(place):
            has = check_topics(begin, are_held)
            yield f"source {source}: {_read_again(ends):,} records again; {has}"
            continue
        for stream, offsets in (streams_of(place) or {}).items():
            first = (streams_of(begin) or {}).get(stream, {})
            yield f"{stream}: {_check_journal(checkpoint, stream, first, offsets)}"
    yield (
        "an output that replaces what it has of a batch id is corrected; from one that appends,"
        " delete these batches first; in one of your own that skips known ids, set its last id back"
    )


def _read_again(ends: Sequence[object]) -> int:
    """Return how many offsets of topics batches have that end so: one may begin further back."""
    steps = pairwise(map(topic_parts, ends))
    return sum(max(0, to - before.get(p, to)) for before, after in steps for p, to in after.items())


def _check_journal(
    checkpoint: Checkpoint, stream: str, start: dict[str, int], end: dict[str, int]
) -> str:
    journal: Storage = attach_storage(f"{checkpoint.url}/{JOURNAL}")
    ranges = ranges_between(start, end)
    records = sum(each.count for each in ranges)
    if stream not in stream_names(journal):
        return f"{records:,} records; not in this location's journal, and not checked"
    try:
        slice_ranges(JournalStream.open(journal, stream), ranges)
    except MissingBlockError as error:
        raise refusal(
            checkpoint,
            f"records of stream {stream} that would be processed again are gone: {error.message}",
            "go back less far",
        ) from error
    return f"{records:,} records again, none retired; `penstock journal verify` reads them all"


def _exactly_once_outputs(checkpoint: Checkpoint) -> list[str]:
    """Return the outputs of a program whose sinks take no earlier batch.

    Raises:
        StorageError: the location cannot be listed.
    """
    newest = checkpoint.batches(checkpoint.planned[-2:])  # the last one may be torn
    recorded = [json.loads(each.conf.get(_OUTPUTS, "{}")).items() for each in newest]
    declared = [name for outputs in recorded for name, is_declared in outputs if is_declared]
    return sorted({*declared, *outputs_with_sinks(attach_storage(checkpoint.url))})


def _refuse_sinks(checkpoint: Checkpoint) -> None:
    names = _exactly_once_outputs(checkpoint)
    if names:
        raise refusal(
            checkpoint,
            f"output {', '.join(names)} writes each batch exactly once: its sink would refuse the "
            "batches that run again, at each start",
            "to process records again, remove them from the sink, and read them by a program with "
            'a new location: journalStream(..., startingOffsets="earliest") over this journal, or '
            "the topics; inputs over topics alone can be moved by `rewind --to-offsets`",
        )


def refuse_state(checkpoint: Checkpoint, position: Position) -> None:
    """Raise CheckpointError if the program keeps state, which would not go back."""
    recorded = position.newest.conf.get(_OPERATORS, "[]")
    names = [str(each.get("name")) for each in json.loads(recorded)]
    if names:
        raise refusal(
            checkpoint,
            f"the program keeps state ({', '.join(names)}), of which earlier versions are not kept",
            "restore a copy of the whole location that was made while the program was stopped",
        )

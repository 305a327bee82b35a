"""The batches of a location: its two logs, and what its driver recorded of those that ended.

An entry of a log never changes while it is what it was: it is read once, and kept for as long as it
is among the newest (a rewound location may write an id again: then the file's time is another).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.batch_records import (
    BATCHES_KEY,
    BatchRecord,
    Driver,
    decode_driver,
    decode_records,
)
from penstock.checkpoint.query_runs import QueryRuns, read_query_runs
from penstock.checkpoint.tools.batches import Batch, batch_paths
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.next_batch import NextBatch
from penstock.checkpoint.tools.offsets import inputs_of, moved, streams_of
from penstock.checkpoint.tools.offsets_text import describe_offset
from penstock.errors import LogFormatError, StorageError
from penstock.rate import RATES_KEY, KeptRates, decode_rates
from penstock.status.model import (
    MOST_BATCHES,
    BatchInput,
    BatchState,
    BatchStatus,
)

_INPUTS = "spark.penstock.inputs"
_INTERVAL = "spark.penstock.batchIntervalMs"
_MOST_TEXT = 2000
_MOST_DIGITS = 16
_Stamp = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class ReadBatches:
    """The newest batches of a location, and what their entries tell of its program."""

    batches: tuple[BatchStatus, ...] = ()
    earlier: int = 0
    committed: int = -1
    is_of_penstock: bool = False
    driver: Driver | None = None
    """The newest that tells of itself."""
    runs: QueryRuns = field(default_factory=QueryRuns)
    """What its newest run noted."""
    interval_ms: int | None = None
    ends: Mapping[str, Any] = field(default_factory=dict)
    """Where the newest planned batch ends, by input."""
    rates: Mapping[str, KeptRates] = field(default_factory=dict)
    """Its history of rates, by input."""
    next: NextBatch | None = None
    problems: tuple[str, ...] = ()


class BatchReader:
    """Reads one location again and again; what does not change is read once.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Stamp, Batch]] = {}

    def read(self, checkpoint: Checkpoint, *, is_locked: bool | None) -> ReadBatches:
        """Return the batches of a location that was just listed.

        Args:
            checkpoint: the listing.
            is_locked: whether a program holds its lock; None where nothing tells, as of queries.
        """
        runs, problems = QueryRuns(), []
        try:
            runs = read_query_runs(checkpoint.storage)
        except StorageError as error:
            problems.append(str(error))
        ids = sorted({*checkpoint.planned, *checkpoint.committed})
        if not ids:
            driver = decode_driver(runs.driver)
            return ReadBatches(driver=driver, runs=runs, problems=tuple(problems))
        batches = self._batches(checkpoint, ids[-MOST_BATCHES - 1 :])  # one more: where it ends
        newest = next((each for each in reversed(batches) if each.planned), None)
        before = next((b for b in batches if newest and b.batch_id == newest.batch_id - 1), None)
        is_program = is_of_penstock(newest)
        driver = decode_driver(newest.conf if newest and is_program else runs.driver)
        if is_program and driver != decode_driver(runs.driver):
            runs = QueryRuns()  # of an earlier run: a program notes its failure alone
        shown = batches[-MOST_BATCHES:]
        ended = is_locked is False or (is_locked is None and runs.has_ended)
        return ReadBatches(
            batches=_statuses(batches, len(shown), runs, ended=ended),
            earlier=len(ids) - len(shown),
            committed=max(checkpoint.committed, default=-1),
            is_of_penstock=is_program,
            driver=driver,
            runs=runs,
            interval_ms=_interval(newest) or runs.trigger_ms or None,
            ends=_named_ends(newest) if newest else {},
            rates=_rates(batches),
            next=checkpoint.next_batch(newest, before),
            problems=(
                *(f"{each.path}: {each.message}" for batch in shown for each in batch.problems),
                *problems,
            ),
        )

    def _batches(self, checkpoint: Checkpoint, wanted: list[int]) -> list[Batch]:
        stamps = {each: _stamp(checkpoint, each) for each in wanted}
        known = {
            each: self._known[each]
            for each, stamp in stamps.items()
            if each in self._known and self._known[each][0] == stamp
        }
        new = checkpoint.batches([each for each in wanted if each not in known])
        self._known = known | {b.batch_id: (stamps[b.batch_id], b) for b in new}
        return [self._known[each][1] for each in wanted if each in self._known]


def _stamp(checkpoint: Checkpoint, batch_id: int) -> _Stamp:
    infos = (checkpoint.files.get(path) for path in batch_paths(batch_id))
    offsets, commit = (None if info is None else (info.modified_ms or info.size) for info in infos)
    return offsets, commit


def _interval(newest: Batch | None) -> int | None:
    text = newest.conf.get(_INTERVAL) if newest else None
    if not isinstance(text, str) or len(text) > _MOST_DIGITS or not text.isdecimal():
        return None
    return int(text)


def _named_ends(batch: Batch) -> dict[str, Any]:
    """Return where a batch ends, by the names of its inputs where its entry has them."""
    try:
        names = json.loads(batch.conf[_INPUTS])
        return {str(names[int(place)]): end for place, end in batch.end_offsets.items()}
    except (IndexError, KeyError, TypeError, ValueError):
        ends = batch.end_offsets.items()
        return {", ".join(inputs_of(place, end)) or place: end for place, end in ends}


def _rates(batches: Iterable[Batch]) -> dict[str, KeptRates]:
    found: dict[str, KeptRates] = {}
    for batch in batches:
        try:
            entry = decode_rates(batch.conf.get(RATES_KEY, "{}"))
        except LogFormatError:
            continue
        for name, kept in entry.items():
            earlier = found[name].batches if name in found else ()
            found[name] = KeptRates(kept.controller, (*earlier, *kept.batches))
    return found


def _statuses(
    batches: Sequence[Batch], count: int, runs: QueryRuns, *, ended: bool
) -> tuple[BatchStatus, ...]:
    """Return the last ``count`` batches; those before tell where they begin."""
    records = {
        record.batch_id: record
        for batch in batches
        for record in decode_records(batch.conf.get(BATCHES_KEY, "[]"))
    }
    starts = {batch.batch_id + 1: _named_ends(batch) for batch in batches}
    return tuple(
        _status(
            batch,
            starts.get(batch.batch_id),
            records.get(batch.batch_id),
            runs,
            ended=ended,
        )
        for batch in batches[-count:]
    )


def _status(
    batch: Batch,
    starts: Mapping[str, Any] | None,
    record: BatchRecord | None,
    runs: QueryRuns,
    *,
    ended: bool,
) -> BatchStatus:
    inputs = _inputs(batch, starts, record)
    known = [each.records for each in inputs if each.records is not None]
    failed = [job.error for job in record.jobs if job.error] if record else []
    if not batch.committed and runs.failed and runs.failed[0] == batch.batch_id:
        failed.append(runs.failed[1])
    return BatchStatus(
        batch_id=batch.batch_id,
        time_ms=batch.time_ms,
        state=_state(batch, failed=bool(failed) or bool(record and record.is_failed), ended=ended),
        is_rerun=batch.batch_id in runs.reruns or (record is not None and record.is_rerun),
        records=sum(known) if known else None,
        scheduling_delay_ms=record.scheduling_delay_ms if record else None,
        processing_ms=record.processing_ms if record else _took_ms(batch, runs),
        total_delay_ms=record.total_delay_ms if record else None,
        plan_ms=record.plan_ms if record else None,
        commit_ms=record.commit_ms if record else None,
        ended_ms=_ended_ms(record) if record else batch.committed_ms,
        inputs=inputs,
        jobs=record.jobs if record else (),
        error=failed[0] if failed else None,
    )


def _took_ms(batch: Batch, runs: QueryRuns) -> int | None:
    """Return the time from a batch's plan to its commit, without that in which nothing ran.

    A batch that ran again began with the run that committed it; of runs before the newest, nothing
    tells when that was.
    """
    if batch.batch_id not in runs.reruns or batch.took_ms is None:
        return batch.took_ms
    assert batch.committed_ms is not None
    return batch.committed_ms - runs.began_ms if batch.committed_ms >= runs.began_ms else None


def _state(batch: Batch, *, failed: bool, ended: bool) -> BatchState:
    if batch.committed:
        return "committed"
    if failed:
        return "failed"
    return "interrupted" if ended else "running"


def _ended_ms(record: BatchRecord) -> int | None:
    return None if record.total_delay_ms is None else record.due_ms + record.total_delay_ms


def _inputs(
    batch: Batch, starts: Mapping[str, Any] | None, record: BatchRecord | None
) -> tuple[BatchInput, ...]:
    said = (record.records if record else None) or {}
    if starts is None and batch.batch_id == 0:
        starts = {}
    return tuple(
        BatchInput(
            name,
            said[name] if name in said else _moved(starts, name, end),
            _text(starts.get(name), end) if starts else "",
            _text(end, starts.get(name) if starts else None),
        )
        for name, end in _named_ends(batch).items()
        if end is not None
    )


def _moved(starts: Mapping[str, Any] | None, name: str, end: Any) -> int | None:
    """Return how many records are between two offsets, as far as offsets count records."""
    if starts is None or streams_of(end) is None:
        return None
    start = starts.get(name)
    return moved({next(iter(end)): {}} if start is None else start, end)


def _text(offset: Any, other: Any) -> str:
    """Return an offset whole, or if it is long by what is not as in the other one."""
    text = "" if offset is None else json.dumps(offset, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= _MOST_TEXT else describe_offset(offset, other)

"""One colour for a location, and why. Pure: a status in, a level and its reasons out.

    error      records were lost or cannot be read; a part that should run does not; nothing commits
    warning    it falls behind, an operator holds it back, a bound is near, records were refused
    stopped    its program does not run, and nothing is wrong
    ok         all others

A program that is stopped is judged by what it left: records that wait for it are not an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Literal

from penstock.checkpoint.batch_ids import describe_ids
from penstock.journal.losses.loss_log import Loss
from penstock.status.model import (
    BatchStatus,
    ConsumerStatus,
    InputStatus,
    LocationStatus,
    ReceiverStatus,
    StreamStatus,
)
from penstock.status.words import ago, duration

Level = Literal["ok", "stopped", "warning", "error"]
"""From the best to the worst."""
Page = Literal["batches", "rates", "receivers", "journal", "checkpoint"]
_ORDER: tuple[Level, ...] = ("ok", "stopped", "warning", "error")

_RECENT = 5
_NO_COMMIT_INTERVALS = 10
_LEAST_NO_COMMIT_MS = 60_000
_INPUT_LAG_INTERVALS = 5
_LEAST_INPUT_LAG_MS = 30_000
_CONSUMER_LAG_MS = 5 * 60_000
_CONSUMER_DEAD_MS = 60 * 60_000
_NEAR_BOUND = 0.8
_LOSS_MS = 24 * 3_600_000
"""A loss is shown for ever, and is an error for a day."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a location is not all right."""

    level: Level
    text: str
    page: Page
    """What shows more of it."""
    place: str = ""
    """Where on that page, or below it: a batch's id, a stream's name."""


@dataclass(frozen=True, slots=True)
class Health:
    """The worst level of all reasons, and these, the worst first."""

    level: Level
    reasons: tuple[Reason, ...]


def health(status: LocationStatus) -> Health:
    """Return how a location does, by what was read of it."""
    found = [
        *_of_batches(status),
        *(reason for each in status.inputs for reason in _of_input(status, each)),
        *(reason for each in status.streams for reason in _of_stream(status, each)),
        *_of_letters(status),
        *(
            r
            for name, each in status.losses.items()
            for r in _of_losses(name, each, status.read_ms)
        ),
        *(Reason("error", problem, "checkpoint") for problem in status.problems),
    ]
    found.sort(key=lambda reason: _ORDER.index(reason.level), reverse=True)
    return Health(found[0].level if found else "ok", tuple(found))


def is_stopped(status: LocationStatus) -> bool:
    """Whether the location's program is known not to run."""
    return status.is_running is False


def has_failed(status: LocationStatus) -> bool:
    """Whether the newest batch failed, or the newest run without one."""
    ended = [each for each in status.batches if each.state in ("committed", "failed")]
    return status.failure is not None or bool(ended and ended[-1].state == "failed")


def _of_batches(status: LocationStatus) -> Iterator[Reason]:
    if status.next is not None and status.next.problem is not None:
        yield Reason("error", f"it cannot start: {status.next.problem}", "checkpoint")
    ended = [each for each in status.batches if each.state in ("committed", "failed")]
    if ended and ended[-1].state == "failed":
        last = ended[-1]
        what = f"batch {last.batch_id} failed: {last.error or 'see its log'}"
        yield Reason("error", what, "batches", str(last.batch_id))
    if status.failure is not None:
        yield Reason("error", f"it failed: {status.failure}", "batches")
    if is_stopped(status):
        yield Reason("stopped", _stopped_text(status), "batches")
        return
    yield from _of_pace(status, [each for each in ended if each.state == "committed"])
    yield from _of_commits(status, ended)


def _stopped_text(status: LocationStatus) -> str:
    again = status.next.rerun if status.next is not None else ()
    text = "its program does not run"
    return f"{text}; batch {describe_ids(again)} runs again at its start" if again else text


def _of_pace(status: LocationStatus, committed: Sequence[BatchStatus]) -> Iterator[Reason]:
    interval_ms = status.batch_interval_ms
    if interval_ms is None or not committed:
        return
    # The newest one's delay is recorded with the next batch.
    last = next(
        (each for each in reversed(committed) if each.scheduling_delay_ms is not None), None
    )
    late_ms = 0 if last is None else last.scheduling_delay_ms or 0
    if last is not None and late_ms > max(interval_ms, 1000):
        level: Level = "error" if late_ms > _no_commit_ms(interval_ms) else "warning"
        what = f"it is behind: batch {last.batch_id} began {duration(late_ms)} late"
        yield Reason(level, what, "batches", str(last.batch_id))
    recent = [each for each in committed[-_RECENT:] if each.processing_ms is not None]
    took = [each.processing_ms or 0 for each in recent]
    if took and median(took) > interval_ms:
        what = f"batches take {duration(round(median(took)))} (median of the last {len(took)})"
        what += f", and the interval is {duration(interval_ms)}"
        slowest = _slowest_job(recent)
        yield Reason("warning", what + (f"; most of it {slowest}" if slowest else ""), "batches")


def _slowest_job(batches: Sequence[BatchStatus]) -> str | None:
    """Return the output operation that took more than half of the batches' time."""
    took: Counter[str] = Counter()
    for job in (job for batch in batches for job in batch.jobs):
        took[job.name] += job.took_ms or 0
    name, most = max(took.items(), key=lambda each: each[1], default=("", 0))
    return name if 2 * most > sum(each.processing_ms or 0 for each in batches) else None


def _of_commits(status: LocationStatus, ended: Sequence[BatchStatus]) -> Iterator[Reason]:
    """Yield that a batch runs for long, or that a program commits nothing any more."""
    limit_ms = _no_commit_ms(status.batch_interval_ms or 0)
    running = [each for each in status.batches if each.state == "running"]
    begun_ms = running[0].time_ms if running else None
    last_ms = max((each.ended_ms for each in ended if each.ended_ms is not None), default=None)
    if begun_ms is not None and status.read_ms - begun_ms > limit_ms:
        batch_id = running[0].batch_id
        what = f"batch {batch_id} is not done after {duration(status.read_ms - begun_ms)}"
        yield Reason("error", what, "batches", str(batch_id))
    elif status.kind == "query":
        return  # it plans no batch while nothing comes
    elif status.batch_interval_ms and last_ms is not None and status.read_ms - last_ms > limit_ms:
        age = duration(status.read_ms - last_ms)
        yield Reason("error", f"no batch was committed for {age}", "batches")


def _no_commit_ms(interval_ms: int) -> int:
    return max(_NO_COMMIT_INTERVALS * interval_ms, _LEAST_NO_COMMIT_MS)


def _of_input(status: LocationStatus, found: InputStatus) -> Iterator[Reason]:
    if found.is_paused:
        yield Reason("warning", f"input {found.name} is paused by an operator", "rates")
    limit_ms = max(_INPUT_LAG_INTERVALS * (status.batch_interval_ms or 0), _LEAST_INPUT_LAG_MS)
    if found.lag_records and (found.lag_ms or 0) > limit_ms and not is_stopped(status):
        what = f"input {found.name} has {found.lag_records:,} records waiting"
        yield Reason("warning", f"{what}, the oldest {duration(found.lag_ms or 0)} old", "rates")


def _of_stream(status: LocationStatus, stream: StreamStatus) -> Iterator[Reason]:
    for receiver in stream.receivers:
        yield from _of_receiver(receiver)
    for consumer in stream.consumers:
        yield from _of_consumer(status, stream, consumer)
    yield from _of_losses(stream.name, stream.losses, status.read_ms)
    for writer in stream.writers:
        if writer.state == "damaged":
            what = f"stream {stream.name}: the newest block of {writer.writer} is damaged"
            yield Reason("error", what, "journal", stream.name)
    if stream.max_bytes and stream.uncommitted_bytes > _NEAR_BOUND * stream.max_bytes:
        part = f"{100 * stream.uncommitted_bytes / stream.max_bytes:.0f}%"
        what = f"stream {stream.name} has {part} of its bytes in use"
        yield Reason("warning", what, "journal", stream.name)
    for problem in stream.problems:
        yield Reason("error", problem, "journal", stream.name)


def _of_receiver(receiver: ReceiverStatus) -> Iterator[Reason]:
    who = f"receiver {receiver.name} of {receiver.stream}"
    if receiver.state == "dead":
        process = f"process {receiver.process.pid} on {receiver.process.host}"
        what = f"{who} is dead: it did not stop, and {process} says nothing any more"
        yield Reason("error", what, "receivers")
    elif receiver.state == "restarting":
        why = f": {receiver.last_error}" if receiver.last_error else ""
        yield Reason("error", f"{who} does not receive{why}", "receivers")


def is_dead(status: LocationStatus, consumer: ConsumerStatus) -> bool:
    """Whether a consumer has committed nothing for an hour though records waited for it.

    Not of a program that is known to be stopped: what waits for it is no fault.
    """
    if not consumer.lag_records or consumer.committed_ms is None:
        return False
    idle_ms = min(consumer.lag_ms or 0, status.read_ms - consumer.committed_ms)
    is_own = consumer.is_of(status.location) and is_stopped(status)
    return idle_ms > _CONSUMER_DEAD_MS and not (is_own or consumer.is_stopped)


def _of_consumer(
    status: LocationStatus, stream: StreamStatus, consumer: ConsumerStatus
) -> Iterator[Reason]:
    if not consumer.lag_records:
        return
    who = f"consumer {consumer.name} of {stream.name}"
    behind = f"{consumer.lag_records:,} records behind"
    if is_dead(status, consumer):
        last = ago(consumer.committed_ms, status.read_ms)
        what = f"{who} seems dead: {behind}, its last commit {last}; the journal keeps them for it"
        yield Reason("error", what, "journal", stream.name)
    elif (consumer.lag_ms or 0) > _CONSUMER_LAG_MS and not consumer.is_of(status.location):
        # Of the location's own program the inputs tell it, with what its batches have yet to take.
        age = duration(consumer.lag_ms)
        yield Reason("warning", f"{who} is {behind}, the oldest {age} old", "journal", stream.name)


def _of_letters(status: LocationStatus) -> Iterator[Reason]:
    for name, count in status.dead_letters.items():
        if count:
            what = f"{count} records of {name} were refused, and wait as dead letters"
            yield Reason("warning", what, "journal", name)


def _of_losses(name: str, losses: Sequence[Loss], now_ms: int) -> Iterator[Reason]:
    recent = [each for each in losses if now_ms - _time_ms(each.when) < _LOSS_MS]
    if recent:
        records = sum(each.records.count for each in recent)
        when = ago(round(_time_ms(recent[0].when)), now_ms)
        what = f"{records:,} records of {name} were lost, the last {when}"
        yield Reason("error", f"{what}: {recent[0].reason}", "journal", name)


def _time_ms(when: str) -> float:
    try:
        return datetime.fromisoformat(when).timestamp() * 1000
    except ValueError:
        return 0.0

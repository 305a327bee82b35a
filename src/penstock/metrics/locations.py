"""From a location's status to samples. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.metrics.catalog import (
    CONSUMER_COMMIT,
    CONSUMER_LAG,
    CONSUMER_LAG_S,
    DEAD_LETTERS,
    HEALTH,
    INPUT_LAG,
    INPUT_PAUSED,
    JOURNAL_BYTES,
    JOURNAL_DAMAGED,
    JOURNAL_MAX_BYTES,
    JOURNAL_UNCOMMITTED_BYTES,
    JOURNAL_WRITTEN,
    LOCATION_PROBLEMS,
    LOCATION_READABLE,
    LOST,
    RECEIVER_ERRORS,
    RECEIVER_STATE,
    Metric,
    Sample,
)
from penstock.status import LocationStatus, Unreadable, health
from penstock.status.model import StreamStatus

_STATES = ("started", "restarting", "stopped", "dead")
_LEVELS = ("ok", "stopped", "warning", "error")


def location_samples(program: str, status: LocationStatus | Unreadable) -> Iterator[Sample]:
    """Return the samples of a location, as those of a program of that name."""
    if isinstance(status, Unreadable):
        yield Sample(LOCATION_READABLE, (program,), 0)
        return
    for metric, labels, value in _values(status):
        if value is not None:
            yield Sample(metric, (program, *labels), value)


_Value = tuple[Metric, tuple[str, ...], float | None]


def _values(status: LocationStatus) -> Iterator[_Value]:
    yield LOCATION_READABLE, (), 1
    yield HEALTH, (), _LEVELS.index(health(status).level)
    yield LOCATION_PROBLEMS, (), len(status.problems)
    for each in status.inputs:
        yield INPUT_LAG, (each.name,), each.lag_records
        yield INPUT_PAUSED, (each.name,), int(each.is_paused)
    streams = {each.name for each in status.streams}
    of_inputs = {each.name: 0 for each in status.inputs if each.name not in streams}
    for name, records in (of_inputs | dict(status.lost_records)).items():
        yield LOST, (name,), records
    # A gauge that began with the first refusals would hide them from delta().
    letters = {each.name: 0 for each in status.streams}
    for name, records in (letters | dict(status.dead_letters)).items():
        yield DEAD_LETTERS, (name,), records
    for stream in status.streams:
        yield from _stream_values(stream)


def _stream_values(stream: StreamStatus) -> Iterator[_Value]:
    name = (stream.name,)
    damaged = sum(writer.state == "damaged" for writer in stream.writers)
    yield JOURNAL_WRITTEN, name, sum(writer.end_offset for writer in stream.writers)
    yield JOURNAL_BYTES, name, stream.size_bytes
    yield JOURNAL_UNCOMMITTED_BYTES, name, stream.uncommitted_bytes
    yield JOURNAL_MAX_BYTES, name, stream.max_bytes
    yield JOURNAL_DAMAGED, name, damaged + len(stream.problems)
    yield LOST, name, stream.lost_records
    for receiver in stream.receivers:
        for state in _STATES:
            yield RECEIVER_STATE, (*name, receiver.name, state), int(receiver.state == state)
        yield RECEIVER_ERRORS, (*name, receiver.name), receiver.errors
    for consumer in stream.consumers:
        labels = (*name, consumer.name)
        yield CONSUMER_LAG, labels, consumer.lag_records
        yield CONSUMER_LAG_S, labels, (consumer.lag_ms or 0) / 1000
        committed_ms = consumer.committed_ms
        yield CONSUMER_COMMIT, labels, None if committed_ms is None else committed_ms / 1000

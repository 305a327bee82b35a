"""What locations say of each other: programs that read a journal elsewhere, its consumers. Pure.

A consumer names the location of its program or query. A program's is named after its input, and a
query's input after the stream. What a program has committed reaches the journal with its next
batch, so of one that was stopped its own location tells how far it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from penstock.status.health import has_failed, is_stopped
from penstock.status.model import (
    BatchStatus,
    ConsumerStatus,
    InputStatus,
    LocationStatus,
    StreamStatus,
)


def needs_others(status: LocationStatus) -> bool:
    """Whether other locations may tell more of this one."""
    consumers = (each for stream in status.streams for each in stream.consumers)
    return any(each.lag_records is None for each in status.inputs) or any(
        each.location is not None and not each.is_of(status.location) for each in consumers
    )


def linked(status: LocationStatus, others: Sequence[LocationStatus]) -> LocationStatus:
    """Return a status with what other locations tell of its inputs' lags and its consumers."""
    if not needs_others(status):
        return status
    consumers = [
        (stream.name, _judged(stream, consumer, [status]))
        for other in others
        for stream in other.streams
        for consumer in stream.consumers
        if consumer.is_of(status.location)
    ]
    inputs = []
    for found in status.inputs:
        own = [
            consumer
            for stream, consumer in consumers
            if consumer.name.startswith(f"{found.name}-")
            or (status.kind == "query" and stream == found.name)
        ]
        inputs.append(_with_lag(found, own))
    streams = [
        replace(each, consumers=tuple(_judged(each, c, others) for c in each.consumers))
        for each in status.streams
    ]
    return replace(status, inputs=tuple(inputs), streams=tuple(streams))


def _with_lag(found: InputStatus, own: Sequence[ConsumerStatus]) -> InputStatus:
    if found.lag_records is not None or not own:
        return found
    lag_ms = max((each.lag_ms for each in own if each.lag_ms is not None), default=None)
    return replace(found, lag_records=sum(each.lag_records for each in own), lag_ms=lag_ms)


def _judged(
    stream: StreamStatus, consumer: ConsumerStatus, programs: Sequence[LocationStatus]
) -> ConsumerStatus:
    """Return a consumer as the location of its program shows it, if that is known."""
    program = next((each for each in programs if consumer.is_of(each.location)), None)
    if program is None:
        return consumer
    committed = next((b for b in reversed(program.batches) if b.state == "committed"), None)
    lag = consumer.lag_records
    if committed is not None:
        lag = min(lag, _untaken(stream, committed))
    return replace(
        consumer,
        lag_records=lag,
        lag_ms=consumer.lag_ms if lag else None,
        is_stopped=is_stopped(program) and not has_failed(program),
    )


def _untaken(stream: StreamStatus, batch: BatchStatus) -> int:
    """Return how many records of a stream come after a batch."""
    taken: dict[str, int] = {}
    for each in batch.inputs:
        try:
            taken |= {writer: int(end) for writer, end in json.loads(each.end)[stream.name].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # another stream's, or one that is cut
    starts = {each.writer: taken.get(each.writer, each.start_offset) for each in stream.writers}
    return sum(max(each.end_offset - starts[each.writer], 0) for each in stream.writers)

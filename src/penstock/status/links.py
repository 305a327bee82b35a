"""What one location says of another: the lag of programs that read a journal elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.status.model import ConsumerStatus, InputStatus, LocationStatus

__all__ = ["with_lags"]


def with_lags(status: LocationStatus, others: Sequence[LocationStatus]) -> LocationStatus:
    """Return a status with the lags that consumers of its program have in other journals.

    A consumer names the location of its program or query. A program's is named after its input, and
    a query's input after the stream.
    """
    if all(each.lag_records is not None for each in status.inputs):
        return status
    consumers = [
        (stream.name, consumer)
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
    return replace(status, inputs=tuple(inputs))


def _with_lag(found: InputStatus, own: Sequence[ConsumerStatus]) -> InputStatus:
    if found.lag_records is not None or not own:
        return found
    lag_ms = max((each.lag_ms for each in own if each.lag_ms is not None), default=None)
    return replace(found, lag_records=sum(each.lag_records for each in own), lag_ms=lag_ms)

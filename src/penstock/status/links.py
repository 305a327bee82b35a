"""What one location says of another: the lag of programs that read a journal elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.status.model import ConsumerStatus, InputStatus, LocationStatus

__all__ = ["with_lags"]


def with_lags(status: LocationStatus, others: Sequence[LocationStatus]) -> LocationStatus:
    """Return a status with the lags that consumers of its program have in other journals.

    A program's consumer names the program's location, and is named after its input.
    """
    if all(each.lag_records is not None for each in status.inputs):
        return status
    consumers = [
        consumer
        for other in others
        for stream in other.streams
        for consumer in stream.consumers
        if consumer.location == status.location
    ]
    return replace(status, inputs=tuple(_with_lag(each, consumers) for each in status.inputs))


def _with_lag(found: InputStatus, consumers: Sequence[ConsumerStatus]) -> InputStatus:
    own = [each for each in consumers if each.name.startswith(f"{found.name}-")]
    if found.lag_records is not None or not own:
        return found
    lag_ms = max((each.lag_ms for each in own if each.lag_ms is not None), default=None)
    return replace(found, lag_records=sum(each.lag_records for each in own), lag_ms=lag_ms)

"""Cuts a batch's range of an input to a limit. Pure.

Invariants:

- A batch never has more records than its limit plus the carried fraction, which is less than one.
- Fractions are carried: a limit of 0.3 records is a batch with one record in about every third,
  never "unlimited", and never one huge batch. The unused part of a limit is not carried.
- Every partition with records gets a share: first each gets its minimum (one record; if the limit
  is too low for that, they take turns), then the rest is divided by lag.
- A cut only moves ends: the range stays contiguous and never extends beyond the end.

A *lane* is a sequence of partitions that are read one after the other: the epochs of one receiver,
whose records would otherwise be reordered. By default each partition is a separate lane, as in
Kafka.

Prior art: Spark's ``DirectKafkaInputDStream.maxMessagesPerPartition`` and ``rateLimit`` of
``KafkaOffsetReader``, and their defects: shares that were rounded to 0, or up to huge batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.model import Offsets
from penstock.rate.estimator import positive

Lane = tuple[str, int]
"""A lane's name, and the index of a partition in it: lower ones are read first."""


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Limits of one batch, in records. None is no limit.

    Raises:
        ConfigError: a limit is not a finite number above 0.
    """

    records: float | None = None
    """Of the whole batch: rate x batch interval."""
    records_per_lane: float | None = None
    min_records_per_lane: int = 1

    def __post_init__(self) -> None:
        for name in ("records", "records_per_lane", "min_records_per_lane"):
            value = getattr(self, name)
            if value is not None:
                positive(name, value)


@dataclass(frozen=True, slots=True)
class Carry:
    """Fractions of a record that batches carry to the next. Starts empty; a restart may lose it."""

    batch: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Lane -> its credit from the batch's limit, negative if it got too much."""
    lanes: Mapping[str, float] = field(default_factory=dict)
    """Lane -> the fraction left of its own limit."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a batch ends."""

    end: dict[str, int]
    count: int
    carry: Carry


def cut_range(
    start: Offsets,
    end: Offsets,
    limits: RangeLimits,
    carry: Carry | None = None,
    lane_of: Callable[[str], Lane] = lambda partition: (partition, 0),
) -> Cut:
    """Return the end of a batch that begins at ``start`` and may reach ``end``.

    Every partition of ``end`` is in the result, also if no record of it is taken.

    Args:
        start: the start offsets of the batch; a missing partition begins at 0.
        end: the end offsets of the available records.
        limits: the limits of the batch.
        carry: from the previous cut.
        lane_of: the lane of a partition, and its index there.

    Raises:
        ConfigError: a partition's end lies before its start.
    """
    carry = Carry() if carry is None else carry
    lanes = _lanes(start, end, lane_of)
    lags = {name: sum(lag for _, lag in parts) for name, parts in lanes.items()}
    lags = {name: lag for name, lag in lags.items() if lag}
    caps, lane_rest = _caps(lags, limits.records_per_lane, carry.lanes)
    available = sum(caps.values())
    budget, batch_rest = _budget(available, limits.records, carry.batch)
    if budget == available:
        taken, shares = caps, dict[str, float]()
    else:
        taken, shares = _share(budget, lags, caps, limits.min_records_per_lane, carry.shares)
    result = {partition: start.get(partition, 0) for partition in end}
    for name, count in taken.items():
        _take(result, lanes[name], count)
    return Cut(result, budget, Carry(batch_rest, shares, lane_rest))


def _lanes(
    start: Offsets, end: Offsets, lane_of: Callable[[str], Lane]
) -> dict[str, list[tuple[str, int]]]:
    """Return each lane's partitions with their lags, in reading order."""
    places = {partition: lane_of(partition) for partition in end}
    lanes: dict[str, list[tuple[str, int]]] = {}
    for partition in sorted(end, key=lambda p: (places[p], p)):
        lag = end[partition] - start.get(partition, 0)
        if lag < 0:
            raise ConfigError(
                f"the end {end[partition]} lies before the start {start[partition]}",
                operation="limit range",
                ids={"partition": partition},
                hint="the source has fewer records than were read from it: check whether it was "
                "replaced",
            )
        lanes.setdefault(places[partition][0], []).append((partition, lag))
    return lanes


def _caps(
    lags: Mapping[str, int], limit: float | None, carried: Mapping[str, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Return the cap of each lane, and the fraction that its limit leaves."""
    if limit is None:
        return dict(lags), {}
    caps, rest = {}, {}
    for name, lag in lags.items():
        allowed = limit + carried.get(name, 0.0)
        caps[name] = min(lag, math.floor(allowed))
        rest[name] = allowed - math.floor(allowed)
    return caps, rest


def _budget(available: int, limit: float | None, carried: float) -> tuple[int, float]:
    """Return the number of records of the batch, and the fraction that its limit leaves."""
    if limit is None:
        return available, 0.0
    allowed = limit + carried
    return min(available, math.floor(allowed)), allowed - math.floor(allowed)


def _share(
    budget: int,
    lags: Mapping[str, int],
    caps: Mapping[str, int],
    least: int,
    carried: Mapping[str, float],
) -> tuple[dict[str, int], dict[str, float]]:
    """Divide a budget that is less than all caps; return the shares and each lane's credit."""
    minima = {name: min(least, cap) for name, cap in caps.items()}
    left = budget - sum(minima.values())
    if left < 0:  # less than the minima: the lanes take turns
        return _round(budget, _quotas(budget, dict.fromkeys(caps, 1), minima), minima, carried)
    room = {name: cap - minima[name] for name, cap in caps.items()}
    more, owed = _round(left, _quotas(left, lags, room), room, carried)
    return {name: minima[name] + more[name] for name in caps}, owed


def _quotas(budget: int, weights: Mapping[str, int], caps: Mapping[str, int]) -> dict[str, float]:
    """Divide by weight. The part above a lane's cap is divided among the others."""
    quotas = dict.fromkeys(caps, 0.0)
    open_lanes, left = set(caps), float(budget)
    while open_lanes:
        weight = sum(weights[name] for name in open_lanes)
        wanted = {name: left * weights[name] / weight for name in open_lanes}
        full = {name for name in open_lanes if wanted[name] > caps[name]}
        if not full:
            return quotas | wanted
        quotas.update({name: float(caps[name]) for name in full})
        left -= sum(caps[name] for name in full)
        open_lanes -= full
    return quotas


def _round(
    budget: int,
    quotas: Mapping[str, float],
    caps: Mapping[str, int],
    carried: Mapping[str, float],
) -> tuple[dict[str, int], dict[str, float]]:
    """Round quotas to whole records, ``budget`` in total, and return each lane's credit.

    Largest remainder first; a lane's earlier credit counts towards it.
    """
    owed = {name: quota + carried.get(name, 0.0) for name, quota in quotas.items()}
    taken = {name: min(max(math.floor(owed[name]), 0), caps[name]) for name in quotas}
    by_need = sorted(owed, key=lambda name: (taken[name] - owed[name], name))
    left = budget - sum(taken.values())
    step = 1 if left > 0 else -1
    while left:
        for name in by_need if step > 0 else reversed(by_need):
            if left and 0 <= taken[name] + step <= caps[name]:
                taken[name] += step
                left -= step
    # Bounded, as lanes come and go with their credits.
    return taken, {name: min(max(owed[name] - taken[name], -1.0), 1.0) for name in owed}


def _take(result: dict[str, int], parts: list[tuple[str, int]], count: int) -> None:
    """Move the ends of a lane's partitions by ``count`` records in all, in reading order."""
    for partition, lag in parts:
        step = min(lag, count)
        result[partition] += step
        count -= step

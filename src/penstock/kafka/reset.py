"""Where a reader of topics is to go on: what ``penstock kafka reset`` can be told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError, KafkaDataLossError
from penstock.model import Offsets


@dataclass(frozen=True, slots=True)
class Target:
    """The point to go on from; exactly one field is given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    at_time: Offsets | None = None
    """Each partition's first offset at or after a time."""
    from_file: Offsets | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the brokers have of a partition now: records ``[begin, end)``."""

    begin: int
    end: int

    def behind(self, position: int) -> int:
        """Return how many of them come at or after a position."""
        return max(0, self.end - max(position, self.begin))


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: where it is, and where it goes on."""

    partition: str
    start: int
    end: int

    def __str__(self) -> str:
        if self.end < self.start:
            return f"{self.partition}: from {self.end}: {self.start - self.end:,} offsets again"
        return f"{self.partition}: from {self.end}: {self.end - self.start:,} offsets are not read"


def select(parts: Collection[str], wanted: Collection[str]) -> list[str]:
    """Return the partitions of topics, or single ones (``topic:partition``); all without any.

    Raises:
        ConfigError: one is not among them.
    """
    if not wanted:
        return sorted(parts)
    found: list[str] = []
    for each in wanted:
        topic, _, partition = each.partition(":")
        of_it = [p for p in parts if p == f"{topic}/{partition}" or _is_of(p, topic, partition)]
        if not of_it:
            raise _wrong(
                f"{each} is not among what is read", f"those are {', '.join(sorted(parts))}"
            )
        found += of_it
    return sorted({*found})


def plan_moves(ends: Offsets, facts: Mapping[str, PartitionFacts], target: Target) -> list[Move]:
    """Return which partitions move, and where to.

    Args:
        ends: where those partitions are that may move.
        facts: what the brokers have of them.
        target: where to.

    Raises:
        KafkaDataLossError: the brokers do not have records from there on.
        ConfigError: the target leaves out a partition, or names one that does not exist.
    """
    moves = []
    for part, start in sorted(ends.items()):
        if part not in facts:
            raise _wrong(f"{part} is not in Kafka any more", "leave it out (--topic)")
        end = _end(part, start, facts[part], target)
        if end is not None and end != start:
            check_held(part, end, facts[part])
            moves.append(Move(part, start, end))
    if unknown := sorted((target.from_file or {}).keys() - ends.keys()):
        raise _wrong(
            f"the file names {', '.join(unknown)}, which is not among what is to move",
            f"those are {', '.join(sorted(ends))}",
        )
    return moves


def _end(part: str, start: int, facts: PartitionFacts, target: Target) -> int | None:
    """Return where a partition goes on; None if it stays."""
    if target.to_earliest:
        return facts.begin
    if target.to_latest:
        return facts.end
    if target.to_offset is not None:
        return target.to_offset
    if target.shift_by is not None:
        return start + target.shift_by
    if target.at_time is not None:
        return target.at_time[part]
    return (target.from_file or {}).get(part)


def check_held(part: str, end: int, facts: PartitionFacts) -> None:
    """Raise KafkaDataLossError if a partition does not have what comes from an offset on."""
    if facts.begin <= end <= facts.end:
        return
    kept = f"the topic has [{facts.begin}, {facts.end})"
    if end < facts.begin:
        what = f"{part} cannot go on from {end}: {facts.begin - end:,} records are gone, {kept}"
    else:
        what = f"{part} cannot go on from {end}: {kept}"
    raise KafkaDataLossError(
        what,
        operation="set offsets",
        ids={"partition": part},
        hint=f"choose {facts.begin} to {facts.end}, or --to-earliest",
    )


def _is_of(part: str, topic: str, partition: str) -> bool:
    return not partition and part.rpartition("/")[0] == topic


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation="reset offsets", hint=hint)

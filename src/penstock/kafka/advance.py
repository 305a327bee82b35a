"""How far a batch goes, and what is lost before it. Pure.

For each partition, of where the stream is (``position``) and what the brokers hold:

    position                    what it means           where the batch begins
    --------------------------  ----------------------  ---------------------------------
    not known                   the partition is new    it is recorded, and read by the next
    begin <= position <= end    nothing is lost         position
    position < begin            retention overtook it   begin ("earliest"), end ("latest")
    end < position              the log was cut off     end (see cut_off)
    not seen now                a topic is away         it stays

A topic that is new is recorded with where it begins, and read from the next batch on: so that where
it begins is durable before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import KafkaDataLossError
from penstock.journal.losses.loss_log import Lost
from penstock.kafka.losses import LOSS_HINT, LostRange, reached
from penstock.model import Offsets

OnDataLoss = Literal["fail", "earliest", "latest"]
"""Whether lost records end the program, or where it continues after them."""


@dataclass(frozen=True, slots=True)
class Advance:
    """The offsets of a batch."""

    starts: Offsets
    """Where it begins to read the partitions that it reads."""
    ends: dict[str, int]
    losses: list[LostRange] = field(default_factory=list)
    """What it passes over, and no loss log has yet."""


def advance(
    start: Offsets,
    begins: Offsets,
    ends: Offsets,
    on_data_loss: OnDataLoss = "fail",
    lost: Lost | None = None,
) -> Advance:
    """Return how far a batch goes that takes all records after ``start``.

    Args:
        start: the end of the batch before.
        begins: where the partitions begin that exist.
        ends: where they end.
        on_data_loss: what happens with lost records.
        lost: the loss log.

    Raises:
        KafkaDataLossError: records are lost, and ``on_data_loss`` is ``"fail"``.
    """
    starts: dict[str, int] = {}
    away: dict[str, int] = {}
    losses: list[LostRange] = []
    positions = reached(start, lost or {})
    for name, position in sorted(start.items()):
        if name not in ends:
            away[name] = position
        else:
            to_latest = on_data_loss == "latest"
            starts[name], loss = _enter(name, positions[name], begins[name], ends[name], to_latest)
            losses += loss
    if losses and on_data_loss == "fail":
        ids = {"partition": losses[0].name, "position": losses[0].start_offset}
        raise KafkaDataLossError(losses[0].reason, operation="plan batch", ids=ids, hint=LOSS_HINT)
    new = {name: begins[name] for name in ends.keys() - starts.keys()}
    return Advance(starts, {**away, **new, **{name: ends[name] for name in starts}}, losses)


def _enter(
    name: str, position: int, begin: int, end: int, to_latest: bool
) -> tuple[int, list[LostRange]]:
    """Return where a partition is read from, and what is lost before that."""
    if position < begin:
        to = end if to_latest else begin
        what = f"records [{position}, {begin}) of {name} were deleted before they were read"
        return to, [LostRange(name, position, to, what)]
    if position > end:
        what = f"{name} ends at {end}, before {position}, up to which it was read: it was cut off"
        return end, [LostRange(name, position, position, what)]
    return position, []

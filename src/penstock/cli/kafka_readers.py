"""What reads topics, by the files of one folder: sources, inputs, batches."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.batched.inspection import inspect_path, is_checkpoint_path
from penstock.errors import ConfigError
from penstock.kafka.held import HeldOffsets, held_offsets
from penstock.model import Offsets


@dataclass(frozen=True, slots=True)
class Reader:
    """One of them."""

    name: str
    ends: Offsets
    at: str
    """What its offsets are of, in words."""
    held: HeldOffsets | None = None
    """The entry of its offset log; None of batches, which have files for each topic."""


def find_readers(place: str) -> list[Reader]:
    """Return what reads topics.

    Raises:
        ConfigError: there is nothing, or no such folder.
        PenstockError: its files cannot be read.
    """
    in_place = _in_checkpoint_path if is_checkpoint_path(place) else _in_checkpoint
    if not (readers := in_place(place)):
        raise ConfigError(
            "there are no Kafka offsets",
            operation="find Kafka offsets",
            path=place,
            hint="give the checkpoint location of a query or program that has planned a batch, or "
            "the checkpoint_path of from_kafka_batched",
        )
    return readers


def one_reader(place: str, name: str | None) -> Reader:
    """Return the reader of a name, or the only one; raises as ``find_readers``."""
    readers = find_readers(place)
    found = [each for each in readers if name in (None, each.name)]
    if len(found) != 1:
        known = ", ".join(each.name for each in readers)
        what = "several sources read topics" if name is None else f"there is no source {name}"
        raise ConfigError(
            what, operation="find Kafka offsets", path=place, hint=f"--source with one of {known}"
        )
    return found[0]


def _in_checkpoint(place: str) -> list[Reader]:
    return [
        Reader(
            held.name,
            held.ends,
            f"batch {held.batch_id}" + ("" if held.is_done else ", not done"),
            held=held,
        )
        for held in held_offsets(place)
    ]


def _in_checkpoint_path(place: str) -> list[Reader]:
    found = inspect_path(place)
    newest = {each.topic: each for each in found.topics if each.newest is not None}
    ends = {f"{t}/{p}": last + 1 for t, each in newest.items() for p, last in each.done.items()}
    at = ", ".join(f"{topic}/{each.newest}.txt" for topic, each in newest.items())
    return [Reader("batches", ends, at)] if ends else []

"""What reads topics, by the files of one folder: sources, inputs, batches, streams of receivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.batched.inspection import inspect_path, is_checkpoint_path
from penstock.cli.journal_places import open_journal
from penstock.errors import ConfigError
from penstock.journal import JournalStream, stream_names
from penstock.kafka.held import HeldOffsets, held_offsets
from penstock.model import Offsets
from penstock.receivers.kafka.progress import read_progress

__all__ = ["Reader", "find_readers", "one_reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """One of them; ``held``, ``is_batches`` or ``stream`` says where its offsets are kept."""

    name: str
    ends: Offsets
    at: str
    """What its offsets are of, in words."""
    held: HeldOffsets | None = None
    is_batches: bool = False
    stream: JournalStream | None = None
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    """By ``topic/partition``, of which topic a stream's records are."""


def find_readers(place: str) -> list[Reader]:
    """Return what reads topics.

    Raises:
        ConfigError: there is nothing, or no such folder.
        PenstockError: its files cannot be read.
    """
    if is_checkpoint_path(place):
        readers = _in_checkpoint_path(place)
    else:
        readers = [*_in_checkpoint(place), *_in_journal(place)]
    if not readers:
        raise ConfigError(
            "there are no Kafka offsets",
            operation="find Kafka offsets",
            path=place,
            hint="give the checkpoint location of a query or program that has planned a batch, the "
            "checkpoint_path of from_kafka_batched, or the journal of receivers",
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
    try:
        found = held_offsets(place)
    except ConfigError:  # a journal is not a checkpoint location
        return []
    return [
        Reader(
            held.name,
            held.ends,
            f"batch {held.batch_id}" + ("" if held.is_done else ", not done"),
            held=held,
        )
        for held in found
    ]


def _in_checkpoint_path(place: str) -> list[Reader]:
    found = inspect_path(place)
    newest = {each.topic: each for each in found.topics if each.newest is not None}
    ends = {f"{t}/{p}": last + 1 for t, each in newest.items() for p, last in each.done.items()}
    at = ", ".join(f"{topic}/{each.newest}.txt" for topic, each in newest.items())
    return [Reader("batches", ends, at, is_batches=True)] if ends else []


def _in_journal(place: str) -> list[Reader]:
    journal = open_journal(place)
    streams = [JournalStream.open(journal, name) for name in stream_names(journal)]
    found = [(stream, read_progress(stream)) for stream in streams]
    return [
        Reader(
            stream.name,
            {part: each.end for part, each in parts.items()},
            "the journal",
            stream=stream,
            topic_ids={part: each.topic_id for part, each in parts.items()},
        )
        for stream, parts in found
        if parts
    ]

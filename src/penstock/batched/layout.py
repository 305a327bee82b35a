"""The files under a checkpoint path, and the text in them. Pure.

    <path>/
      dirty_bit                              records were read that no checkpoint holds yet; empty
      write-ahead-logs/<topic>/<p>.txt       5: the last offset of partition p that was read
      <topic>/<N>.txt                        {"0": 5, "1": 4}: the last offset that is done,
                                             by partition, when the N-th checkpoint was made
      driver.lock                            the program that uses the path (local file systems)
      planned                                {"id": "<uuid>", "batch": 7, "ranges": {"<topic>":
                                             {"0": [6, 9]}}, "sinks": ["<name>"]}: the batch that
                                             these exactly-once sinks write, from the first to the
                                             last offset; -1 before the first one
      topics                                 {"<topic>": "<id>"}: Kafka's id of the topic that its
                                             checkpoints count in; {"<topic>": {"0": "<id>", "8":
                                             "<id>"}} if those from the 8th on count in another one,
                                             which has its name
      rewind                                 {"topics": {"<topic>": {"number": 8, "before":
                                             {"0": 9}, "after": {"0": 5}, "ids": ["<id>", "<id>"]}},
                                             "planned": null}: a way back to other offsets that was
                                             begun: its checkpoints, with the ids that they count in

Offsets in files are inclusive, as in the proposal that this layout is from: the last record that
was read, or processed. Everything else in penstock counts ends, which are exclusive: ``parse_*``
and ``dump_*`` translate. -1 says that nothing of a partition is done, and that it was there: what
is deleted of it before it is read is lost. A partition that is not in a checkpoint is new.

``0.txt`` is there until a topic has its first checkpoint, and says where its first batch begins.

Source: python-streamz issue 279, "Checkpointing".
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.driver_lock import LOCK_NAME
from penstock.errors import ConfigError
from penstock.kafka.offsets import TOPIC_NAME, KafkaRange

__all__ = [
    "DIRTY_BIT",
    "LOGS",
    "PLANNED",
    "REWIND",
    "TOPICS",
    "Move",
    "Planned",
    "Rewind",
    "TopicEnds",
    "TopicIds",
    "check_topics",
    "checkpoint_number",
    "checkpoint_path",
    "dump_checkpoint",
    "dump_log",
    "dump_planned",
    "dump_rewind",
    "dump_topics",
    "id_at",
    "log_path",
    "parse_checkpoint",
    "parse_log",
    "parse_planned",
    "parse_rewind",
    "parse_topics",
    "with_id",
]

DIRTY_BIT = "dirty_bit"
LOGS = "write-ahead-logs"
PLANNED = "planned"
REWIND = "rewind"
TOPICS = "topics"
TopicIds = Mapping[str, Mapping[int, str | None]]
"""By topic, the ids that its checkpoints count in, by the first one's number; None: unknown."""
_RESERVED = (DIRTY_BIT, LOGS, LOCK_NAME, PLANNED, REWIND, TOPICS)
_NUMBER = re.compile(r"(0|[1-9][0-9]*)\.txt")
_UNQUOTED = re.compile(r"([{,]\s*)([0-9]+)(\s*:)")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_OFFSET = 2**63 - 1


def check_topics(topics: Iterable[str]) -> None:
    """Refuse a topic whose folder would stand in the place of another file.

    Raises:
        ConfigError: its name is reserved.
    """
    for topic in topics:
        if topic in _RESERVED:
            raise ConfigError(
                f"a topic named {topic!r} cannot have checkpoints: the checkpoint path has a file "
                "or folder of that name",
                operation="from_kafka_batched",
                ids={"topic": topic},
                hint="copy its records to a topic of another name, or leave checkpoint_path out",
            )


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch that exactly-once sinks write: its program's id, its number and its ranges."""

    id: str
    batch: int
    ranges: tuple[KafkaRange, ...]
    sinks: tuple[str, ...] = ()
    """The names of its outputs."""

    def is_of(self, sink: str) -> bool:
        """Whether an output of that name may have written it."""
        return sink in self.sinks


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """How far a topic is done, and which topic that is: under its name there may be another now.

    Tools take these two from a checkpoint to a checkpoint, and neither without the other.
    """

    ends: Mapping[int, int]
    """By partition."""
    id: str | None = None
    """Kafka's id of the topic; None: not known, so that of the next start counts."""


@dataclass(frozen=True, slots=True)
class Move:
    """A topic's new checkpoint: its number, and what is done before it and in it."""

    number: int
    before: TopicEnds
    after: TopicEnds


@dataclass(frozen=True, slots=True)
class Rewind:
    """New checkpoints with other offsets, of the topics that move."""

    topics: Mapping[str, Move]
    planned: str | None
    """What was in the file ``planned``, which the rewind removes."""
    is_begun: bool = False
    """Whether a command began it before, and did not complete it."""


def checkpoint_path(topic: str, number: int) -> str:
    """Return the path of a topic's N-th checkpoint."""
    return f"{topic}/{number}.txt"


def checkpoint_number(name: str) -> int | None:
    """Return N of a file's name ``<N>.txt``, None for any other name."""
    found = _NUMBER.fullmatch(name)
    return None if found is None else int(found[1])


def log_path(topic: str, partition: int) -> str:
    """Return the path of a partition's log."""
    return f"{LOGS}/{topic}/{partition}.txt"


def dump_checkpoint(ends: Mapping[int, int]) -> bytes:
    """Return the text of a checkpoint of ends by partition."""
    return json.dumps({str(p): end - 1 for p, end in sorted(ends.items())}).encode()


def parse_checkpoint(data: bytes) -> dict[int, int]:
    """Return the ends by partition of a checkpoint's text, with quoted partitions or without.

    Raises:
        ValueError: it is not the text of a checkpoint; says why.
    """
    text = data.decode()
    if not text.strip():
        raise ValueError("it is empty")
    try:
        found = json.loads(_UNQUOTED.sub(r'\1"\2"\3', text), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - as all that is wrong with it
    for partition, offset in found.items():
        if not _DECIMAL.fullmatch(partition):
            raise ValueError(f"{partition!r} is not a partition")
        if type(offset) is not int or not -1 <= offset < _MAX_OFFSET:
            raise ValueError(f"{offset!r} is not an offset")
    return {int(partition): offset + 1 for partition, offset in found.items()}


def dump_log(end: int) -> bytes:
    """Return the text of a partition's log that was read up to ``end``."""
    return str(end - 1).encode()


def parse_log(data: bytes) -> int:
    """Return the end of a partition's log.

    Raises:
        ValueError: it is not the text of a log.
    """
    text = data.decode().strip()
    if not text.isdecimal():
        raise ValueError(f"{text[:100]!r} is not an offset")
    return int(text) + 1


def dump_planned(planned: Planned) -> bytes:
    """Return the text of a planned batch."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for each in planned.ranges:
        partitions = ranges.setdefault(each.topic, {})
        partitions[str(each.partition)] = [each.start_offset, each.end_offset - 1]
    fields = {"id": planned.id, "batch": planned.batch, "ranges": ranges, "sinks": planned.sinks}
    return json.dumps(fields).encode()


def parse_planned(data: bytes) -> Planned:
    """Return the planned batch of a text.

    Raises:
        ValueError: it is not the text of one.
    """
    try:
        found = json.loads(data)
        ranges = [
            KafkaRange(topic, int(partition), low, high + 1)
            for topic, partitions in found["ranges"].items()
            for partition, (low, high) in partitions.items()
        ]
        batch, sinks = found["batch"], tuple(map(str, found["sinks"]))
        offsets = [offset for each in ranges for offset in (each.start_offset, each.end_offset)]
        is_sound = all(0 <= r.start_offset < r.end_offset for r in ranges)
        if {type(each) for each in (batch, *offsets)} != {int} or not is_sound or batch < -1:
            raise ValueError("its numbers are none of a batch")
        return Planned(str(uuid.UUID(found["id"])), batch, tuple(sorted(ranges)), sinks)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is not a planned batch: {error!r}") from error


def dump_rewind(rewind: Rewind) -> bytes:
    """Return the text of a rewind."""
    topics = {
        topic: {
            "number": move.number,
            "before": json.loads(dump_checkpoint(move.before.ends)),
            "after": json.loads(dump_checkpoint(move.after.ends)),
            "ids": [move.before.id, move.after.id],
        }
        for topic, move in rewind.topics.items()
    }
    return json.dumps({"topics": topics, "planned": rewind.planned}).encode()


def parse_rewind(data: bytes) -> Rewind:
    """Return the rewind of a text: one that was begun.

    Raises:
        ValueError: it is not the text of one.
    """
    try:
        found = json.loads(data)
        topics = {t: _parse_move(t, **each) for t, each in found["topics"].items()}
        planned = found["planned"]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is not a rewind: {error!r}") from error
    return Rewind(topics, None if planned is None else str(planned), is_begun=True)


def _parse_move(
    topic: str, number: int, before: object, after: object, ids: Sequence[str | None]
) -> Move:
    if not TOPIC_NAME.fullmatch(topic) or topic in (*_RESERVED, ".", ".."):
        raise ValueError(f"{topic!r} is not a topic with checkpoints")
    if type(number) is not int or checkpoint_number(f"{number}.txt") is None:
        raise ValueError(f"{number!r} is not a number of a checkpoint")
    ends = (parse_checkpoint(json.dumps(each).encode()) for each in (before, after))
    return Move(number, *(TopicEnds(*each) for each in zip(ends, ids, strict=True)))


def id_at(ids: Mapping[int, str | None], number: int) -> str | None:
    """Return the id that a topic's N-th checkpoint counts in."""
    return ids.get(max((first for first in ids if first <= number), default=-1))


def with_id(ids: TopicIds, topic: str, number: int, topic_id: str | None) -> TopicIds:
    """Return the ids if a topic's checkpoints from the N-th on count in one."""
    of = ids.get(topic, {})
    if id_at(of, number) == topic_id:
        return ids
    before = {first: each for first, each in of.items() if first < number}
    return {**ids, topic: {**before, number: topic_id}}


def dump_topics(ids: TopicIds) -> bytes:
    """Return the text of topics' ids."""
    texts = {t: of[0] if of.keys() == {0} else dict(sorted(of.items())) for t, of in ids.items()}
    return json.dumps(dict(sorted(texts.items()))).encode()


def parse_topics(data: bytes) -> dict[str, dict[int, str | None]]:
    """Return topics' ids.

    Raises:
        ValueError: it is not the text of such.
    """
    try:
        return {str(topic): _parse_ids(each) for topic, each in json.loads(data).items()}
    except (AttributeError, RecursionError) as error:
        raise ValueError(f"it has no topics: {error!r}") from error


def _parse_ids(found: object) -> dict[int, str | None]:
    if not isinstance(found, dict):
        return {0: None if found is None else str(found)}
    return {int(first): None if each is None else str(each) for first, each in found.items()}


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a partition is given twice")
    return found

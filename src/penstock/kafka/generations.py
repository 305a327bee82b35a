"""Topics that are created anew under their names, noticed by their ids.

    sources/<input>/topics/<n>.json     {"clicks": ["kGl1ZW50LWNsaWNrcy0wMQ", "x9..."]}

A topic's ids in the order in which they were seen; the place of its last one is its *generation*.

Invariants:

1. An entry is durable before any offset of a generation that it begins: the first offsets
   (``sources/<input>/0``), and each entry of the offset log. So offsets say for good which topic's
   they are.
2. An entry is created exclusively and never changed; the newest holds everything. Of two drivers
   that see a topic anew one creates it, and the other one ends.

A kill after the create leaves a generation that no offset names, which the next plan begins with.
Without an entry the ids of today count as those that offsets are of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from penstock.errors import (
    AlreadyExistsError,
    ConcurrentDriverError,
    KafkaError,
    LogFormatError,
    RecoveryMismatchError,
)
from penstock.kafka.offsets import generation_of, split_name
from penstock.model import Offsets
from penstock.storage import Storage

_FILE = re.compile(r"([0-9]+)\.json")


class Generations:
    """The generations of an input's topics. Not thread-safe.

    Args:
        storage: the checkpoint location.
        stream: the input's name.

    Raises:
        LogFormatError: the newest entry is damaged.
        StorageError: it cannot be read.
    """

    def __init__(self, storage: Storage, stream: str) -> None:
        self._storage = storage
        self._stream = stream
        numbers = (_FILE.fullmatch(name) for name in storage.names(_folder(stream)))
        self._newest = max((int(match[1]) for match in numbers if match), default=-1)
        self._ids = {} if self._newest < 0 else self._read(self._newest)

    def observe(self, ids: Mapping[str, str | None]) -> dict[str, int]:
        """Return the generation of each topic; makes durable which ids are new.

        A topic without an id, of old brokers, stays of its generation.

        Raises:
            KafkaError: a topic has an id that it had before its present one.
            ConcurrentDriverError: another driver saw other ids.
            StorageError: they cannot be made durable; the call may be repeated.
        """
        self._check_present(ids)
        new = {
            topic: [*self._ids.get(topic, ()), topic_id]
            for topic, topic_id in ids.items()
            if topic_id is not None and self._ids.get(topic, [None])[-1] != topic_id
        }
        if new:
            self._append({**self._ids, **new})
        return {topic: max(0, len(self._ids.get(topic, ())) - 1) for topic in ids}

    @property
    def is_noted(self) -> bool:
        """Whether there is an entry."""
        return self._newest >= 0

    def begin_with(self, others: Generations) -> None:
        """Make durable the ids that the input has in another place, as its first entry.

        Raises:
            ConcurrentDriverError, StorageError: as ``observe``.
        """
        self._append(dict(others._ids))

    def check(self, offsets: Offsets) -> None:
        """Check that the generations of offsets are those of topics whose ids are noted.

        Raises:
            RecoveryMismatchError: the notes of one are not there: its offsets may be of any topic
                that had the name.
        """
        for name in offsets:
            topic, generation = split_name(name)[0], generation_of(name)
            if generation >= max(1, len(self._ids.get(topic, ()))):
                raise RecoveryMismatchError(
                    f"the offsets are of {topic}@{generation}, which was created anew {generation} "
                    "times, and the ids by which that was noticed are not there",
                    operation="plan batch",
                    path=self._storage.uri(_folder(self._stream)),
                    ids={"topic": topic},
                    hint="restore the folder, or give the lossLog that the query had; without one "
                    "begin with a new checkpoint, and starting offsets of your choice",
                )

    @property
    def topics(self) -> Collection[str]:
        """The topics that were seen."""
        return self._ids.keys()

    def id_of(self, topic: str, generation: int) -> str | None:
        """Return the id of a topic's generation, None if none was noted."""
        ids = self._ids.get(topic, [])
        return ids[generation] if generation < len(ids) else None

    def _check_present(self, ids: Mapping[str, str | None]) -> None:
        """Refuse ids of the past: ids are never used again, so a broker's metadata is behind."""
        for topic, topic_id in ids.items():
            if topic_id is not None and topic_id in self._ids.get(topic, ())[:-1]:
                raise KafkaError(
                    f"a broker answered for topic {topic} as it was before it was recreated",
                    operation="list topics",
                    ids={"topic": topic, "id": topic_id},
                    hint="wait until the brokers have the same metadata; if the cluster was "
                    "restored from a backup, start with a new checkpoint location",
                )

    def _append(self, ids: dict[str, list[str]]) -> None:
        number = self._newest + 1
        path = _path(self._stream, number)
        try:
            self._storage.create(path, _dump(ids))
        except AlreadyExistsError as error:
            if self._read(number) != ids:
                raise ConcurrentDriverError(
                    "another driver noted other ids of the topics",
                    operation="plan batch",
                    path=self._storage.uri(path),
                    hint="stop one of the drivers, and start this one again",
                ) from error
        self._newest, self._ids = number, ids

    def _read(self, number: int) -> dict[str, list[str]]:
        path = _path(self._stream, number)
        try:
            found = json.loads(self._storage.read(path))
            return {str(topic): [str(each) for each in ids] for topic, ids in found.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise LogFormatError(
                "the ids of the topics cannot be read",
                operation="open stream",
                path=self._storage.uri(path),
                hint="restore the file from a backup; without one delete it: then a topic that "
                "was recreated since the previous file is not noticed",
            ) from error


def _folder(stream: str) -> str:
    return f"sources/{stream}/topics"


def _path(stream: str, number: int) -> str:
    return f"{_folder(stream)}/{number}.json"


def _dump(ids: Mapping[str, list[str]]) -> bytes:
    return json.dumps(ids, sort_keys=True).encode()

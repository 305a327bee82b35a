"""The checkpoints that a checkpoint path has, for tools: with the ids they count in. Reads only."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.batched.layout import (
    LOGS,
    TOPICS,
    TopicEnds,
    checkpoint_number,
    checkpoint_path,
    id_at,
    parse_checkpoint,
    parse_topics,
)
from penstock.errors import ConfigError, LogFormatError, NotFoundError
from penstock.kafka.identified import IdentifiedOffsets
from penstock.kafka.offsets import partition_name
from penstock.storage import Storage, open_existing

__all__ = [
    "ends_of",
    "identified_ends",
    "kept_numbers",
    "newest",
    "open_path",
    "read_ids",
    "refusal",
    "sound",
    "sound_ends",
    "topics_of",
]


def open_path(place: str | os.PathLike[str]) -> Storage:
    """Open a checkpoint path that exists.

    Raises:
        ConfigError: there is no such folder, or the URL is not understood.
    """
    hint = "give the checkpoint_path of from_kafka_batched"
    return open_existing(os.fspath(place), operation="read checkpoint path", hint=hint)


def topics_of(storage: Storage) -> list[str]:
    """Return the topics that have a folder with files, whatever these are."""
    folders = [entry.name for entry in storage.list() if entry.is_folder and entry.name != LOGS]
    return [name for name in folders if storage.names(name)]


def identified_ends(topics: Mapping[str, TopicEnds]) -> IdentifiedOffsets:
    """Return what is done of topics as offsets of ``topic/partition``."""
    return IdentifiedOffsets(
        {partition_name(t, p): end for t, each in topics.items() for p, end in each.ends.items()},
        {topic: each.id for topic, each in topics.items() if each.id is not None},
    )


def kept_numbers(storage: Storage, topic: str) -> list[int]:
    """Return the numbers of a topic's checkpoints, ascending."""
    return sorted(n for n in map(checkpoint_number, storage.names(topic)) if n is not None)


def read_ids(storage: Storage) -> dict[str, dict[int, str | None]]:
    """Return the ids that topics' checkpoints count in, as ``parse_topics``.

    Raises:
        LogFormatError: their file is damaged.
    """
    try:
        return parse_topics(storage.read(TOPICS))
    except NotFoundError:
        return {}
    except ValueError as error:
        raise LogFormatError(
            f"the file of topics' ids is damaged: {error}",
            operation="read topics' ids",
            path=storage.uri(TOPICS),
            hint="if no topic was created anew since the last run, remove it",
        ) from error


def sound_ends(storage: Storage, topic: str) -> dict[int, dict[int, int]]:
    """Return the ends by partition of each sound checkpoint by its number, ascending: to show."""
    found = {}
    for number in kept_numbers(storage, topic):
        try:
            found[number] = parse_checkpoint(storage.read(checkpoint_path(topic, number)))
        except (ValueError, NotFoundError):
            continue
    return found


def sound(storage: Storage, topic: str) -> dict[int, TopicEnds]:
    """Return each sound checkpoint by its number, ascending.

    Raises:
        LogFormatError: the file of topics' ids is damaged.
    """
    ids = read_ids(storage).get(topic, {})
    found = sound_ends(storage, topic)
    return {number: TopicEnds(ends, id_at(ids, number)) for number, ends in found.items()}


def newest(storage: Storage, topic: str) -> tuple[int, TopicEnds]:
    """Return the highest number of a topic, and its newest sound checkpoint.

    Raises:
        ConfigError: it has none.
        LogFormatError: the file of topics' ids is damaged.
    """
    found = sound(storage, topic)
    if not found:
        raise refusal(storage, f"topic {topic} has no sound checkpoint", "see validate")
    return max(kept_numbers(storage, topic)), found[max(found)]


def ends_of(storage: Storage, topic: str, number: int) -> TopicEnds:
    """Return one checkpoint.

    Raises:
        ConfigError: there is none of that number, or it is damaged.
        LogFormatError: the file of topics' ids is damaged.
    """
    path = checkpoint_path(topic, number)
    try:
        ends = parse_checkpoint(storage.read(path))
    except NotFoundError:
        kept = ", ".join(map(str, kept_numbers(storage, topic))) or "none"
        raise refusal(storage, f"there is no {path}", f"{topic} has {kept}") from None
    except ValueError as error:
        raise refusal(storage, f"{path} is damaged: {error}", "choose another one") from error
    return TopicEnds(ends, id_at(read_ids(storage).get(topic, {}), number))


def refusal(storage: Storage, what: str, hint: str) -> ConfigError:
    """Return the error of a way back that is not possible."""
    return ConfigError(what, operation="rewind", path=storage.url, hint=hint)

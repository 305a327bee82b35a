"""The checkpoints that a checkpoint path has, for tools. Reads only."""

from __future__ import annotations

import os

from penstock.batched.layout import LOGS, checkpoint_number, checkpoint_path, parse_checkpoint
from penstock.errors import ConfigError, NotFoundError
from penstock.storage import Storage, open_existing

__all__ = ["ends_of", "kept_numbers", "newest", "open_path", "refusal", "sound", "topics_of"]


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


def kept_numbers(storage: Storage, topic: str) -> list[int]:
    """Return the numbers of a topic's checkpoints, ascending."""
    return sorted(n for n in map(checkpoint_number, storage.names(topic)) if n is not None)


def sound(storage: Storage, topic: str) -> dict[int, dict[int, int]]:
    """Return the ends by partition of each sound checkpoint by its number, ascending."""
    found = {}
    for number in kept_numbers(storage, topic):
        try:
            found[number] = parse_checkpoint(storage.read(checkpoint_path(topic, number)))
        except (ValueError, NotFoundError):
            continue
    return found


def newest(storage: Storage, topic: str) -> tuple[int, dict[int, int]]:
    """Return the highest number of a topic, and the ends of its newest sound checkpoint.

    Raises:
        ConfigError: it has none.
    """
    found = sound(storage, topic)
    if not found:
        raise refusal(storage, f"topic {topic} has no sound checkpoint", "see validate")
    return max(kept_numbers(storage, topic)), found[max(found)]


def ends_of(storage: Storage, topic: str, number: int) -> dict[int, int]:
    """Return the ends by partition of one checkpoint.

    Raises:
        ConfigError: there is none of that number, or it is damaged.
    """
    path = checkpoint_path(topic, number)
    try:
        return parse_checkpoint(storage.read(path))
    except NotFoundError:
        kept = ", ".join(map(str, kept_numbers(storage, topic))) or "none"
        raise refusal(storage, f"there is no {path}", f"{topic} has {kept}") from None
    except ValueError as error:
        raise refusal(storage, f"{path} is damaged: {error}", "choose another one") from error


def refusal(storage: Storage, what: str, hint: str) -> ConfigError:
    """Return the error of a way back that is not possible."""
    return ConfigError(what, operation="rewind", path=storage.url, hint=hint)

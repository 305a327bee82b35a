"""Checks of receivers' arguments, which are refused where they are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import ConfigError
from penstock.model import shown

__all__ = ["check", "topics_of"]


def check(holds: object, problem: str, hint: str, operation: str = "set up receiver") -> None:
    """Raise ConfigError for what does not hold."""
    if not holds:
        raise ConfigError(problem, operation=operation, hint=hint)


def topics_of(topics: Any, example: str, operation: str) -> tuple[str, ...]:
    """Return the topics of an argument; a str is one topic.

    Raises:
        ConfigError: there is none, or one is not a str.
    """
    is_one = isinstance(topics, str) or not isinstance(topics, Iterable)
    found = (topics,) if is_one else tuple(topics)
    hint = f"pass for example [{example!r}]"
    check(found, "no topic is given", hint, operation)
    for topic in found:
        check(isinstance(topic, str), f"{shown(topic)} is not a topic", hint, operation)
    return found

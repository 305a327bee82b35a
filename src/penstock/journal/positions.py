"""The source's position after a store: a JSON value that becomes durable with the records."""

from __future__ import annotations

import json
import reprlib
from abc import ABC, abstractmethod
from typing import Any

from penstock.errors import ConfigError


class DeferredPosition(ABC):
    """A position that contains the offsets of its own records, so it is created with the block.

    It is passed to a store instead of a JSON value. Both methods are called from one thread of the
    writer, before the records are durable (the ack signals that), and must not call the writer.
    """

    __slots__ = ()

    @abstractmethod
    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        """Receive the offsets of the records; called once, in the order of the stores."""

    @abstractmethod
    def value(self) -> Any:
        """Return the position, a JSON value that must not change afterwards.

        Called for the last deferred position of a block only, when all of its stores have offsets:
        it speaks for the others of the block. With None, the last JSON position of the block's
        stores is effective; without one, that of the block before.
        """


def dump_position(position: Any) -> str | DeferredPosition | None:
    """Return a store's position as JSON text, so that changes of the object do not change it.

    Raises:
        ConfigError: it is not a JSON value.
    """
    if position is None or isinstance(position, DeferredPosition):
        return position
    try:
        return json.dumps(position, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise ConfigError(
            f"position {reprlib.repr(position)} is not a JSON value",
            operation="append",
            hint="build positions from dict, list, str, int, float, bool and None",
        ) from e


def load_position(text: str | None, earlier: Any) -> Any:
    """Return the position in a store's JSON text; the previous one if it has none."""
    return earlier if text is None else json.loads(text)

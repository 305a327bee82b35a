"""Where a source stands after a store: a JSON value that becomes durable with the records."""

from __future__ import annotations

import json
import reprlib
from abc import ABC, abstractmethod
from typing import Any

from penstock.errors import ConfigError

__all__ = ["DeferredPosition", "dump_position", "load_position"]


class DeferredPosition(ABC):
    """A position that tells where its own records are, so that it can only be made with the block.

    It is given to a store in place of a JSON value. Both methods are called from one thread of the
    writer, before anything is durable (the ack tells that), and must not call the writer.
    """

    __slots__ = ()

    @abstractmethod
    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        """Learn which offsets the records get; called once, in the order of the stores."""

    @abstractmethod
    def value(self) -> Any:
        """Return the position, a JSON value; None leaves the one before it in force.

        Asked of a block's last store only, when all of the block's stores were placed.
        """


def dump_position(position: Any) -> str | DeferredPosition | None:
    """Return a store's position as JSON text, so that changes of the object do not change it.

    Raises:
        ConfigError: it is no JSON value.
    """
    if position is None or isinstance(position, DeferredPosition):
        return position
    try:
        return json.dumps(position, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise ConfigError(
            f"position {reprlib.repr(position)} is no JSON value",
            operation="append",
            hint="build positions from dict, list, str, int, float, bool and None",
        ) from e


def load_position(text: str | None, earlier: Any) -> Any:
    """Return the position in a store's JSON text; the one from before when it brought none."""
    return earlier if text is None else json.loads(text)

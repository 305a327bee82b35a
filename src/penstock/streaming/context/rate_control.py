"""Limits that a program sets while it runs: highest rates and pauses of its inputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import StreamingError
from penstock.rate import RateOrder
from penstock.rate.checks import positive
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.inputs.input import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.engine.engine import Engine

__all__ = ["RateControl"]


class RateControl(ABC):
    """The part of a StreamingContext that limits inputs.

    ``penstock rate set``, ``pause`` and ``resume`` do the same from outside. While the program
    runs the last order counts, whoever gave it, and stays in force over restarts.
    """

    graph: DStreamGraph
    _engine: Engine | None

    def setMaxRate(self, stream: InputDStream | str, rate: float | None) -> None:
        """Set the highest rate of an input, for its batches and its receivers.

        Before the program is started this takes the place of ``spark.streaming.receiver.maxRate``
        for that input. While it runs it is an order, in force at once.

        Args:
            stream: an input of this program, or its name.
            rate: records per second; None for what the settings say.

        Raises:
            ConfigError: the rate is not a finite number above 0. To have nothing processed, use
                ``pause``.
            StreamingError: there is no such input, or it takes no limits.
            StorageError: the order could not be made durable, and is not in force.
        """
        if rate is not None:
            positive("rate", rate)
        if self._engine is None:
            self._limited_input(stream).max_rate = rate
        else:
            self._order(stream, lambda order: replace(order, max_rate=rate))

    def pause(self, stream: InputDStream | str) -> None:
        """Receive and process nothing of an input until ``resume``; batches go on without it.

        Push sources feel it as they feel a limit: what they send waits with them.

        Raises:
            StreamingError: the program does not run, or has no such input.
            StorageError: as ``setMaxRate``.
        """
        self._order(stream, lambda order: replace(order, paused=True))

    def resume(self, stream: InputDStream | str) -> None:
        """Go on with an input that was paused. Raises as ``pause``."""
        self._order(stream, lambda order: replace(order, paused=False))

    def _order(self, stream: InputDStream | str, change: Callable[[RateOrder], RateOrder]) -> None:
        engine = self._engine
        if engine is None:
            raise StreamingError(
                "the program does not run",
                operation="order rate",
                hint="call start() first, or use `penstock rate` on its checkpoint location",
            )
        engine.order_rate(_name(stream), change)

    def _limited_input(self, stream: InputDStream | str) -> InputDStream:
        for known in self.graph.inputs:
            if known.name == _name(stream) and known.takes_limits:
                return known
        raise StreamingError(
            f"{_name(stream)!r} is no input of this program that takes a rate limit",
            operation="set rate",
            ids={"stream": _name(stream)},
            hint="give the stream that receiverStream, socketTextStream or tailStream returned",
        )


def _name(stream: InputDStream | str) -> str:
    return stream if isinstance(stream, str) else stream.name

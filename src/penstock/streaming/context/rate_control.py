"""Limits that a program sets at run time: highest rates and pauses of its inputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import StreamingError
from penstock.rate import RateOverride
from penstock.rate.estimator import positive
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.inputs.input import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.engine.engine import Engine


class RateControl(ABC):
    """The part of a StreamingContext that limits inputs.

    ``penstock rate set``, ``pause`` and ``resume`` do the same from outside. While the program runs
    the last override applies, whoever set it, also across restarts.
    """

    graph: DStreamGraph
    _engine: Engine | None

    def setMaxRate(self, stream: InputDStream | str, rate: float | None) -> None:
        """Set the highest rate of an input, for its batches and its receivers.

        Before the program is started, this replaces ``spark.streaming.receiver.maxRate`` for that
        input. While it runs, this sets an override, which takes effect at once.

        Args:
            stream: an input of this program, or its name.
            rate: records per second; None for the rate of the settings.

        Raises:
            ConfigError: the rate is not a finite number above 0. To stop processing, use ``pause``.
            StreamingError: the program has no such input, or the input supports no limits.
            StorageError: the override could not be made durable, and does not apply.
        """
        if rate is not None:
            positive("rate", rate)
        if self._engine is None:
            self._limited_input(stream).max_rate = rate
        else:
            self._override(stream, lambda override: replace(override, max_rate=rate))

    def pause(self, stream: InputDStream | str) -> None:
        """Pause receiving and processing of an input until ``resume``; batches continue without it.

        Push sources see it like a limit: their records wait at the source.

        Raises:
            StreamingError: the program is not running, or has no such input.
            StorageError: as ``setMaxRate``.
        """
        self._override(stream, lambda override: replace(override, paused=True))

    def resume(self, stream: InputDStream | str) -> None:
        """Resume an input that was paused. Raises as ``pause``."""
        self._override(stream, lambda override: replace(override, paused=False))

    def _override(
        self, stream: InputDStream | str, change: Callable[[RateOverride], RateOverride]
    ) -> None:
        engine = self._engine
        if engine is None:
            raise StreamingError(
                "the program is not running",
                operation="override rate",
                hint="call start() first, or use `penstock rate` on its checkpoint location",
            )
        engine.override_rate(_name(stream), change)

    def _limited_input(self, stream: InputDStream | str) -> InputDStream:
        for known in self.graph.inputs:
            if known.name == _name(stream) and known.takes_limits:
                return known
        raise StreamingError(
            f"{_name(stream)!r} is not an input of this program that supports a rate limit",
            operation="set rate",
            ids={"stream": _name(stream)},
            hint="pass the stream that receiverStream, socketTextStream or tailStream returned",
        )


def _name(stream: InputDStream | str) -> str:
    return stream if isinstance(stream, str) else stream.name

"""Runs of one program on one checkpoint location, stepped by a manual clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from penstock.journal import JournalStream
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.durable import wait_durable

Define = Callable[[StreamingContext], object]


class Runs:
    """Each run builds the program anew, so its outputs may note what they see in any object."""

    def __init__(
        self,
        sc: SparkContext,
        location: Path,
        clock: ManualClock | None = None,
        stream: str = "numbers",
    ) -> None:
        self.sc = sc
        self.location = location
        self.clock = clock or ManualClock(1_000_000)
        self._stream = stream
        self._ssc: StreamingContext | None = None

    @property
    def ssc(self) -> StreamingContext:
        """The context of the newest run."""
        assert self._ssc is not None
        return self._ssc

    def create(self, interval_s: float = 1, recover: Any = "program") -> StreamingContext:
        """Return the context of a run that continues what is in the location."""
        self._ssc = StreamingContext.getOrCreate(
            str(self.location),
            lambda: StreamingContext(self.sc, interval_s, clock=self.clock),
            recover,
        )
        return self._ssc

    def start_program(
        self, define: Define, interval_s: float = 1, recover: Any = "program"
    ) -> Stepper:
        """Start a run of what ``define`` adds to the context."""
        define(self.create(interval_s, recover))
        return self.start_context(self.ssc)

    def start_context(self, ssc: StreamingContext) -> Stepper:
        """Start a context, however it was made, as the newest run."""
        self._ssc = ssc
        stepper = Stepper(ssc, self.clock)
        ssc.start()
        return stepper

    @contextmanager
    def running_program(
        self, define: Define, interval_s: float = 1, **stop: bool
    ) -> Iterator[Stepper]:
        """Have a run for the block."""
        try:
            yield self.start_program(define, interval_s)
        finally:
            self.stop(**stop)

    def stop(self, **how: bool) -> None:
        """Stop the newest run, if there is one."""
        if self._ssc is not None:
            self._ssc.stop(stopSparkContext=False, **how)

    def journal(self, stream: str | None = None) -> JournalStream:
        """Return the journal's stream, by default the one that the program is about."""
        storage = open_storage(self.location / "journal")
        return JournalStream.open(storage, stream or self._stream, allow_pickle=True)

    def wait_durable(self, count: int, stream: str | None = None) -> None:
        """Wait until so many of the stream's records are in blocks."""
        wait_durable(self.location, stream or self._stream, count)

    def offsets(self, batch_id: int) -> list[Any]:
        """Return the offsets of each input in a batch's entry."""
        lines = (self.location / "offsets" / str(batch_id)).read_text().splitlines()
        return [json.loads(line) for line in lines[2:]]

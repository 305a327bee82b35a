"""A program over one growing file, which can be made again and again on one location."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext

from penstock.journal import JournalStream
from penstock.storage import open_storage
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.durable import wait_durable


class Program:
    """A program over one growing file that can be made again and again on one location."""

    def __init__(self, sc: SparkContext, root: Path) -> None:
        self.sc = sc
        self.root = root
        self.log = root / "app.log"
        self.log.touch()
        self.clock = ManualClock(1_000_500)
        self.seen: list[tuple[int, list[str]]] = []
        self.ssc: StreamingContext | None = None

    def start(self, define: Callable[[DStream], DStream], interval: float = 1) -> Stepper:
        def create() -> StreamingContext:
            return StreamingContext(self.sc, interval, clock=self.clock)

        # Its output notes what it sees in this object, which is not to be pickled.
        place = str(self.root / "checkpoint")
        self.ssc = StreamingContext.getOrCreate(place, create, recover="program")
        lines = self.ssc.tailStream(str(self.log), name="lines")
        define(lines).foreachRDD(
            lambda time, rdd: self.seen.append((round(time.timestamp()), sorted(rdd.collect())))
        )
        stepper = Stepper(self.ssc, self.clock)
        self.ssc.start()
        return stepper

    def stop(self) -> None:
        if self.ssc is not None:
            self.ssc.stop(stopSparkContext=False)

    def feed(self, *lines: str) -> None:
        """Append lines, and wait until they are in the journal."""
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        wait_durable(self.root / "checkpoint", "lines", len(self.log.read_text().splitlines()))

    def journal(self) -> JournalStream:
        return JournalStream.open(open_storage(self.root / "checkpoint" / "journal"), "lines")

    def blocks(self) -> list[Path]:
        return sorted((self.root / "checkpoint" / "journal").glob("*/*/*.parquet"))


def run_batches(program: Program, stepper: Stepper, *lines: str) -> None:
    for line in lines:
        program.feed(line)
        stepper.step()

"""A program over one growing file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkContext

from penstock.streaming import DStream
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs


class Program(Runs):
    def __init__(self, sc: SparkContext, root: Path) -> None:
        super().__init__(sc, root / "checkpoint", ManualClock(1_000_500), stream="lines")
        self.log = root / "app.log"
        self.log.touch()
        self.seen: list[tuple[int, list[str]]] = []

    def start(self, define: Callable[[DStream], DStream], interval: float = 1) -> Stepper:
        def collect(time: datetime, rdd: RDD[Any]) -> None:
            self.seen.append((round(time.timestamp()), sorted(rdd.collect())))

        return self.start_program(
            lambda ssc: define(ssc.tailStream(str(self.log), name="lines")).foreachRDD(collect),
            interval,
        )

    def feed(self, *lines: str) -> None:
        """Append lines, and wait until they are in the journal."""
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        self.wait_durable(len(self.log.read_text().splitlines()))

    def blocks(self) -> list[Path]:
        return sorted((self.location / "journal").glob("*/*/*.parquet"))


def run_batches(program: Program, stepper: Stepper, *lines: str) -> None:
    for line in lines:
        program.feed(line)
        stepper.step()

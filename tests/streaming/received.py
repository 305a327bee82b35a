"""A receiver of numbers, and a program of one stream that such receivers fill."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.receivers import Receiver
from penstock.streaming import DStream, StreamingContext
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs


class Numbers(Receiver):
    """Stores the given records once, each with its place as position."""

    def __init__(self, records: list[Any], schema: str | pa.Schema = "string") -> None:
        self.records = records
        self.schema = schema

    def onStart(self) -> None:
        threading.Thread(target=self._store, daemon=True).start()

    def onStop(self) -> None:
        pass

    def _store(self) -> None:
        done = self.lastPosition() or 0
        for place, record in enumerate(self.records[done:], start=done + 1):
            self.store(record, position=place)


class Program(Runs):
    """A program of one stream, whose runs have different receivers."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location)
        self.rows: list[Any] = []

    @contextmanager
    def running(self, receiver: Receiver, **stop: bool) -> Iterator[Stepper]:
        def define(ssc: StreamingContext) -> None:
            self.define(ssc.receiverStream(receiver, name="numbers"))

        with self.running_program(define, **stop) as stepper:
            yield stepper

    def define(self, stream: DStream) -> None:
        stream.foreachBatch(self.collect)

    def collect(self, df: DataFrame, batch_id: int) -> None:
        self.rows += df.collect()

"""The commands of docs/operating.md, "Process the last batches again", do what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.checkpoint.tools import plan_rewind
from penstock.errors import CheckpointError, PenstockError
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs
from tests.waiting import eventually

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
REWIND, LIST, COPY, REMOVE, TIDY, CUT_ANEW = range(6)
"""The page's blocks of commands, in order."""


class Program(Runs):
    """A tailed file, its lines written by batch id, and counted in state if there is some."""

    def __init__(self, sc: SparkContext, clock: ManualClock, folder: Path) -> None:
        super().__init__(sc, folder / "c", clock)
        self.folder = folder
        self.keeps_state = False
        self.written: dict[int, list[str]] = {}
        self.ran: list[int] = []
        self.totals: dict[str, int] = {}

    def start(self) -> Stepper:
        return self.start_program(self.define)

    def define(self, ssc: StreamingContext) -> None:
        lines = ssc.tailStream(str(self.folder / "log"), name="log")

        def write(df: DataFrame, batch_id: int) -> None:
            if values := sorted(row.value for row in df.collect()):
                self.ran.append(batch_id)
                self.written[batch_id] = values

        lines.foreachBatch(write)
        if self.keeps_state:
            pairs = lines.map(lambda line: ("lines", 1))
            counts = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0)).checkpoint(1)
            counts.foreachRDD(lambda rdd: self.totals.update(rdd.collect()))

    def add(self, stepper: Stepper, *lines: str) -> None:
        """Have lines processed, one in each batch."""
        for line in lines:
            before = len(self.lines())
            with (self.folder / "log").open("a") as file:
                file.write(f"{line}\n")
            assert eventually(lambda n=before: bool(stepper.step()) and len(self.lines()) == n + 1)

    def lines(self) -> list[str]:
        return sorted(line for lines in self.written.values() for line in lines)

    def lose(self, first: int) -> None:
        """Lose what the sink has of the batches from that one on."""
        for batch_id in [n for n in self.written if n >= first]:
            del self.written[batch_id]

    def run(self, block: int, first: int = 0) -> str:
        """Run a block of the page's commands in the location; return what it prints."""
        found = re.findall(r"^ *```sh\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        text = textwrap.dedent(found[block]).replace("/data/report", str(self.location))
        text = text.replace("first=118", "").replace("--to-batch 117", f"--to-batch {first - 1}")
        text = text.replace("penstock ", f"{Path(sys.executable).with_name('penstock')} ")
        script = f"cd {self.location}; first={first}; {text}"
        done = subprocess.run(
            ["/bin/sh", "-ec", script], capture_output=True, check=True, text=True
        )
        assert done.stderr == ""
        return done.stdout


@pytest.fixture
def program(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> Program:
    return Program(sc, clock, tmp_path)


def test_batches_are_processed_again(program: Program) -> None:
    program.add(program.start(), *"0123")
    program.stop()
    ids = sorted(int(path.name) for path in (program.location / "offsets").glob("[0-9]*"))
    listed = program.run(LIST).splitlines()
    assert listed[:2] == [str(ids[0]), str(ids[-1])]
    assert [int(line.split()[0]) for line in listed[2:]] == ids
    for line in listed[2:]:
        batch_id, time = line.split()
        entry = (program.location / "offsets" / batch_id).read_text().splitlines()[1]
        assert int(time.rpartition(":")[2]) == json.loads(entry)["batchTimestampMs"]

    before, ran = dict(program.written), list(program.ran)
    first = ran[1]
    program.run(COPY)
    program.run(REMOVE, first)
    program.lose(first)
    stepper = program.start()
    stepper.wait_completed(ids[-1] - first + 1)
    assert program.written == before
    assert program.ran == ran + ran[1:]
    program.add(stepper, "4")
    program.stop()
    program.run(TIDY)
    assert not (program.location / "commits.before").exists()

    printed = program.run(REWIND, first)
    assert "run again, under their ids and with the same records" in printed
    before = dict(program.written)
    program.lose(first)
    stepper = program.start()
    assert eventually(lambda: bool(stepper.step()) and program.written == before)
    program.stop()

    program.run(REMOVE, first)
    program.run(CUT_ANEW, first)
    program.lose(first)
    stepper = program.start()
    assert eventually(lambda: bool(stepper.step()) and program.lines() == list("01234"))
    assert program.written == {ran[0]: ["0"], first: list("1234")}


def test_keyed_state_does_not_go_back(program: Program) -> None:
    """Nothing is written then, and the copy of the commit log undoes it."""
    program.keeps_state = True
    program.add(program.start(), *"012")
    program.stop()
    before, first = list(program.ran), program.ran[1]
    with pytest.raises(CheckpointError, match="keeps state"):
        plan_rewind(program.location, to_batch=first - 1)
    program.run(COPY)
    program.run(REMOVE, first)
    with pytest.raises(PenstockError, match="further than state is kept"):
        program.start().wait_completed(1)
    if StreamingContext.getActive() is not None:
        program.stop()
    assert program.ran == before
    for file in (program.location / "commits.before").iterdir():
        (program.location / "commits" / file.name).write_bytes(file.read_bytes())
    program.add(program.start(), "3")
    assert program.ran == [*before, program.ran[-1]]
    assert program.totals == {"lines": 4}

"""A batch that failed by damage: its error names a command, after which it runs again without."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pyspark import SparkContext
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import BatchFailedError, MissingBlockError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.layout import block_path
from penstock.storage import open_storage
from penstock.streaming import DStream
from tests.journal.helpers import write_blocks
from tests.streaming.received import Numbers, Program
from tests.streaming.settings import spark_silent
from tests.streaming.test_journal_streams import Reader
from tests.waiting import eventually

pytestmark = pytest.mark.spark


class BothPaths(Program):
    """Takes each batch as DataFrame, as RDD and parsed, and its number of records."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location)
        self.from_rdd: list[str] = []
        self.parsed: list[int] = []

    def define(self, stream: DStream) -> None:
        super().define(stream)
        stream.foreachRDD(lambda rdd: self.from_rdd.extend(rdd.collect()))
        parsed = stream.parse(int)  # type: ignore[attr-defined]
        parsed.foreachRDD(lambda rdd: self.parsed.extend(rdd.collect()))


@pytest.mark.parametrize("hurt", ["damaged", "missing"])
def test_a_failed_batch_runs_again_without_what_was_given_up(
    sc: SparkContext, tmp_path: Path, hurt: str
) -> None:
    program = BothPaths(sc, tmp_path / "checkpoint")
    for count in (1, 2, 3):  # a writer each, so that the second one's block is not the newest
        with program.running(Numbers([str(n) for n in range(count)])):
            program.wait_durable(count)
    journal = program.journal()
    block = program.location / "journal" / block_path("numbers", journal.writers()[1], 0)
    if hurt == "missing":
        block.unlink()
    else:
        block.write_bytes(block.read_bytes()[:-1])

    with (
        spark_silent(sc),
        program.running(Numbers(["0", "1", "2"])) as stepper,
        pytest.raises(BatchFailedError) as caught,
    ):
        stepper.step()
    told = str(caught.value)
    assert "\n" not in told
    assert hurt in told or "not in the journal" in told
    assert block.name in told or hurt == "missing"
    run_command(told)

    program.rows, program.from_rdd, program.parsed = [], [], []
    with program.running(Numbers(["0", "1", "2", "3"])) as stepper:
        program.wait_durable(4)
        stepper.step()
        assert eventually(lambda: program.parsed == [0, 2, 3])  # the last output of both batches
    assert [row.value for row in program.rows] == ["0", "2", "3"]
    assert program.from_rdd == ["0", "2", "3"]


def test_a_lost_end_stops_the_program_with_a_command_that_works(
    sc: SparkContext, tmp_path: Path
) -> None:
    stream = JournalStream.create(open_storage(tmp_path / "a j"), "clicks", RecordFormat("string"))
    writer = write_blocks(stream, [["a"], ["b"]], close=False)  # killed: nobody seals it
    reader = Reader(sc, tmp_path / "checkpoint", stream)
    with reader.running() as stepper:
        stepper.step()
    stream.storage.delete(block_path(stream.name, writer, 1))
    with reader.running() as stepper, pytest.raises(MissingBlockError) as caught:
        stepper.step()
    write_blocks(stream, [["c"]])  # its receiver starts again, and seals
    run_command(str(caught.value))
    with reader.running() as stepper:
        stepper.step()
    assert reader.seen == [["a", "b"], ["c"]]


def run_command(told: str) -> None:
    """Give up what an error names, by its command as it stands."""
    (command,) = re.findall(r"`(penstock journal skip [^`]*)`", told)
    arguments = shlex.split(command.replace("TEXT", "gone"))[1:]
    done = CliRunner().invoke(app, [*arguments, "--yes"])
    assert done.exit_code == 0, done.output

"""The recovery of a killed driver, step by step as Spark's write-ahead logs promised it.

recover computation     the graph is read back from its graph checkpoint
recover block metadata  by listing the journal: there is no other log of blocks
re-generate jobs        batches without a commit run again, with the same records
read the blocks         of records that were acked, whether planned or not
resend unacked data     by the source, to the receiver that was started again
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.durable import durable
from tests.faults.driver import Driver
from tests.streaming.acking_source import AckingSource
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("acking_program.py")


def records(start: int, end: int) -> list[str]:
    return [f"order {number}" for number in range(start, end)]


def test_a_killed_driver_recovers_step_by_step(tmp_path: Path) -> None:
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "sink"
    sink.mkdir()
    late = [f"late {number}" for number in range(5)]
    with AckingSource().serving() as source:
        args = [str(checkpoint), str(source.port), str(sink)]
        with Driver(PROGRAM, args, tmp_path / "errors") as first:
            assert first.wait_line("") == "created"
            source.send(*records(0, 10))
            first.wait_records(10)
            (sink / "hang").touch()
            source.send(*records(10, 20))
            hung = first.wait_line("hanging").split()[1]
            source.send(*records(20, 30))  # received and acked, and in no batch yet
            source.send(*late)  # received, and never stored
            assert eventually(lambda: source.unacked() == late)
            first.kill()
        assert durable(checkpoint, "orders") == 30
        (sink / "hang").unlink()

        with Driver(PROGRAM, args, tmp_path / "errors") as second:
            assert second.wait_line("") == "made"  # nothing was created anew
            # Of the batch that hung the records before the kill, neither fewer nor more.
            again = second.wait_line("committed").split()
            assert again[3] == hung
            assert sorted((sink / hung).read_text().splitlines()) == records(10, 10 + int(again[2]))
            second.wait_records(30 + len(late) - 10 - int(again[2]))
            second.finish()
    assert source.unacked() == []
    assert source.resent[1:] == [late]
    files = (file.read_text().splitlines() for file in sink.glob("[0-9]*"))
    assert Counter(line for lines in files for line in lines) == Counter([*records(0, 30), *late])

"""The reader without Spark of docs/several-receivers.md: it runs as it stands, and goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.journal import JournalStream, RecordFormat, commit_consumer, consumers
from penstock.storage import open_storage
from tests.journal.helpers import write_blocks

DOC = Path(__file__).parents[2] / "docs" / "several-receivers.md"
JOURNAL = "/data/ingest/journal"


@pytest.fixture
def program(tmp_path: Path) -> str:
    (code,) = re.findall(
        r"## A reader without Spark.*?```python\n(.*?)```", DOC.read_text(), re.DOTALL
    )
    assert JOURNAL in code
    return str(code).replace(JOURNAL, str(tmp_path))


def read_and_kill(program: str, count: int) -> list[str]:
    """Run the program until it printed so many lines, and kill it when it slept after them."""
    asleep = program.replace("time.sleep(1)", "print('asleep', flush=True); time.sleep(600)")
    with subprocess.Popen([sys.executable, "-c", asleep], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline().rstrip("\n") for _ in range(count + 1)]
        run.kill()
    assert lines.pop() == "asleep"
    return lines


def test_it_reads_all_once_beside_another_consumer_and_after_a_kill(
    program: str, tmp_path: Path
) -> None:
    clicks = JournalStream.create(open_storage(tmp_path), "clicks", RecordFormat("string"))
    writer = write_blocks(clicks, [["a"], ["b"], ["c"]])
    commit_consumer(clicks, "report", {str(writer): 1})
    assert read_and_kill(program, 3) == ["a", "b", "c"]
    assert [block.start_offset for block in clicks.blocks(writer)] == [1, 2, 3]
    later = write_blocks(clicks, [["d"]])
    commit_consumer(clicks, "report", {str(later): 1})
    assert read_and_kill(program, 1) == ["d"]
    assert consumers(clicks)["audit"] == {str(later): 1}
    assert [block.start_offset for block in clicks.blocks(writer)] == [3]  # its seal

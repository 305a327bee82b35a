"""What commands that change something print with ``--json``: one object, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.journal import JournalStream, commit_consumer
from tests.cli.commands import Commands
from tests.journal.helpers import path_of, rewrite, write_blocks
from tests.ui.world import Batches, program


def printed(*arguments: str) -> Any:
    return json.loads(Commands(*arguments).succeed("--json"))


def test_a_consumer_that_is_removed(lines: JournalStream, journal: str) -> None:
    commit_consumer(lines, "old", {})
    found = printed("journal", "consumers", "rm", journal, "lines", "old")
    assert found == {"stream": "lines", "removed": "old"}


def test_records_that_are_skipped_and_are_skipped_again(lines: JournalStream, journal: str) -> None:
    writer = write_blocks(lines, [["a", "b"], ["c"], ["d"]])
    damaged = path_of(lines, writer, 2)
    rewrite(lines.storage, damaged, b"PAR1")
    command = ("journal", "skip", journal, "lines", f"{writer}:2-3", "--reason", "disk", "--yes")
    facts = {"stream": "lines", "writer": str(writer), "start": 2, "end": 3, "records": 1}
    assert printed(*command) == {**facts, "skipped_now": True}
    assert printed(*command) == {**facts, "skipped_now": False}


@pytest.mark.parametrize(
    ("arguments", "override"),
    [
        (("set", "500"), {"paused": False, "max_rate": 500.0}),
        (("pause",), {"paused": True, "max_rate": None}),
        (("resume",), {"paused": False, "max_rate": None}),
    ],
)
def test_a_rate_that_is_changed(
    tmp_path: Path, arguments: tuple[str, ...], override: dict[str, object]
) -> None:
    program(tmp_path / "p", Batches(3))
    found = printed("rate", *arguments, "--checkpoint", str(tmp_path / "p"))
    assert found == {"checkpoint": str(tmp_path / "p"), "overrides": {"clicks": override}}

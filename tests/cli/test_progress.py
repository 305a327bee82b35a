"""Progress bars: on a terminal's standard error, and nowhere else."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.journal import JournalStream
from tests.cli.commands import Commands
from tests.journal.helpers import path_of, rewrite, write_blocks

VERIFY = Commands("journal", "verify")


def test_verify_prints_damage_as_json(lines: JournalStream, journal: str) -> None:
    writer = write_blocks(lines, [["a", "b"], ["c"], ["d"]])
    damaged = path_of(lines, writer, 2)
    rewrite(lines.storage, damaged, lines.storage.read(damaged)[:-7])
    done = VERIFY.run(journal, "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert (found["streams"], found["damaged"], found["records"]) == (["lines"], 1, 3)
    (damage,) = found["damage"]
    assert damage["kind"] == "damaged"
    assert damage["file"].endswith(damaged)
    assert damage["skip"][0].startswith("penstock journal skip")


@pytest.mark.slow
@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_bar_is_on_a_terminal_and_the_output_has_none(
    lines: JournalStream, journal: str, on_terminal: bool
) -> None:
    write_blocks(lines, [["a"], ["b"]])
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("penstock")), "journal", "verify", journal],
        stdout=subprocess.PIPE,
        stderr=theirs if on_terminal else subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
        check=True,
    )
    os.set_blocking(ours, False)
    os.close(theirs)
    shown = os.read(ours, 65_536) if on_terminal else done.stderr
    os.close(ours)
    assert (b"verify" in shown) == on_terminal
    assert done.stdout.endswith(b"all sound\n")
    assert b"\x1b" not in done.stdout

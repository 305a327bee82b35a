from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app, main
from tests.cli.commands import leaf_commands


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"penstock {penstock.__version__}\n"


def test_an_error_of_penstock_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock", "journal", "ls", "/nowhere"])

    with pytest.raises(SystemExit) as exited:
        main()

    assert exited.value.code == 1
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert printed[0].startswith("penstock: error: ")
    assert "Hint: " in printed[0]


SERVING = ("ingest ", "ui")
"""They run until they are stopped, and print a log."""


def test_every_command_prints_json_where_it_is_asked_to() -> None:
    without = {
        name
        for name, command in leaf_commands(get_command(app))
        if not name.startswith(SERVING)
        and not any("--json" in each.opts for each in command.params)
    }
    assert without == set()


@pytest.mark.slow
def test_a_shell_completes_commands() -> None:
    words = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock jou", "COMP_CWORD": "1"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("penstock"))],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["journal"]

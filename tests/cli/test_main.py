from __future__ import annotations

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app, main


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"penstock {penstock.__version__}\n"


def test_an_error_of_penstock_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock", "doctor", "--path", "s3://bucket/journal"])

    with pytest.raises(SystemExit) as exited:
        main()

    assert exited.value.code == 1
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert printed[0].startswith("penstock: error: s3://bucket/journal is not a folder")
    assert "Hint: " in printed[0]

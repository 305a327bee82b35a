"""What deploy/ holds is understood by what it is for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = (DEPLOY / "penstock-ingest@.service").read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "penstock-ingest@clicks.service"
    copy.write_text(UNIT.replace("/opt/penstock/bin/penstock", sys.executable))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_the_unit_comes_back_unless_another_process_took_over() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    assert settings["Restart"] == "always"
    assert settings["RestartPreventExitStatus"] == "3"
    assert settings["StartLimitIntervalSec"] == "0"
    assert settings["User"] == "penstock"


def test_the_example_configuration_is_a_command_line() -> None:
    (value,) = re.findall(
        r"^PENSTOCK_INGEST=(.*)$", (DEPLOY / "ingest-clicks.conf").read_text(), re.MULTILINE
    )
    result = CliRunner().invoke(app, ["ingest", *shlex.split(value), "--help"])
    assert result.exit_code == 0, result.output


def test_the_container_runs_the_command_as_no_root() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    instructions = {line.split()[0]: line for line in lines if not line.startswith(" ")}
    assert instructions["USER"] == "USER 10001:10001"
    assert instructions["ENTRYPOINT"] == 'ENTRYPOINT ["penstock", "ingest"]'
    assert "/healthz" in instructions["HEALTHCHECK"]
    assert next(iter(instructions)) == "FROM"
    for source in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((DEPLOY.parent / name).exists() for name in source.split())

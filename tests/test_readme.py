"""The README's program runs as it stands, but for its paths."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually

README = Path(__file__).parent.parent / "README.md"


def program() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return str(code)


def test_the_program_is_short() -> None:
    assert len([line for line in program().splitlines() if line.strip()]) <= 15


@pytest.mark.spark
def test_the_program_runs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("all is well\nan error came\n")
    code = program().replace("/tmp/errors", str(tmp_path / "out")).replace("/var/log", str(logs))
    printed = tmp_path / "printed.txt"
    # As a newcomer has it: nobody told Spark which Python its workers shall run.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    bare["PATH"] = "/usr/bin:/bin"
    with printed.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", code], env=bare, stdout=file, stderr=file)
    try:
        came = eventually(lambda: "('error', 1)" in printed.read_text())
        assert came, printed.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()
    assert list((tmp_path / "out").glob("batch=*/_SUCCESS"))

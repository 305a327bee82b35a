"""What `make test` runs, and how a run of it is judged (``scripts/gate.py``)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import repeating_tests

ROOT = Path(__file__).parents[1]
TESTS = """
import os
from pathlib import Path
import pytest

def test_passes(): pass

{more}
"""
FLAKY = """
def test_fails_once():
    if not Path("failed").exists():
        Path("failed").touch()
        assert not "the first time"
"""
GROUPED = "@pytest.mark.xdist_group('a file.py')" + FLAKY
BROKEN = "\nimport no_such_module\n"
FAILS = "def test_fails(): assert not 'ever'\n"
SKIPPED = "def test_skipped(): pytest.skip('no broker')\n"
CRASHES = "def test_crashes(): os._exit(1)\n"
LOST = "@pytest.mark.durability" + FLAKY
MANY = "@pytest.mark.parametrize('n', range(4))\ndef test_fails(n): assert n < 0\n"


def test_each_line_of_storm_txt_is_of_a_test() -> None:
    assert [test for test in repeating_tests() if not _exists(test)] == []


def _exists(test: str) -> bool:
    file, *names = re.sub(r"\[.*$", "", test).split("::")
    if not (ROOT / file).exists():
        return False
    text = "\n".join(path.read_text() for path in (ROOT / file).parent.glob("*.py"))  # suites, too
    return all(re.search(rf"^ *(class|def) {name}\b", text, re.MULTILINE) for name in names)


@pytest.mark.storm
@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        pytest.param("", 0, "1 passed, 0 failed, 0 skipped", id="green"),
        pytest.param(FLAKY, 0, "FLAKY test_it.py::test_fails_once", id="flaky"),
        pytest.param(GROUPED, 0, "FLAKY test_it.py::test_fails_once", id="flaky in a group"),
        pytest.param(BROKEN, 13, "No module named 'no_such_module'", id="broken"),
        pytest.param(FAILS, 13, "FAILED test_it.py::test_fails", id="failed"),
        pytest.param(MANY, 13, "1 passed, 4 failed, 0 skipped", id="too many to run again"),
        pytest.param(LOST, 13, "FAILED test_it.py::test_fails_once", id="durability"),
        pytest.param(SKIPPED, 13, "SKIPPED test_it.py::test_skipped", id="skipped"),
        pytest.param(CRASHES, 13, "CRASHED test_it.py::test_crashes", id="crashed"),
    ],
)
def test_a_run_is_judged(tmp_path: Path, more: str, status: int, said: str) -> None:
    """The gate over a project of its own, whose checks and programs pass."""
    for name in ("scripts", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "scripts" / "gate.py").write_text((ROOT / "scripts" / "gate.py").read_text())
    (tmp_path / "tests" / "report.py").write_text((ROOT / "tests" / "report.py").read_text())
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.report"]\n')
    (tmp_path / "Makefile").write_text("programs check:\n")
    (tmp_path / "test_it.py").write_text(TESTS.format(more=more))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n    storm\n    soak\n    durability\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "scripts.gate"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert said in done.stdout

"""A program in a process of its own, forked from one that has imported what programs need."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.driver import Driver

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
here = os.path.dirname(__file__) in sys.path
print(here, os.getsid(0) == os.getpid(), os.environ.get("NEW"), sys.argv[1:], flush=True)
for line in sys.stdin:
    print("read", line, file=sys.stderr, flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def test_it_runs_as_a_program_whose_folder_hides_no_module(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW", "set")
    with Driver(program, ["0", "b"], program.with_name("errors")) as driver:
        assert driver.wait_line("") == "False True set ['0', 'b']"
        driver.tell("a line")
        driver.finish()
    assert driver.log() == "read a line\n\n"


def test_its_end_is_known(program: Path) -> None:
    with Driver(program, ["7"], program.with_name("errors")) as driver:
        driver.wait_line("False")
        with pytest.raises(AssertionError):
            driver.finish()
        assert driver.process.poll() == 7
        driver.restart()
        driver.wait_line("False")
        driver.kill()
        assert driver.process.wait() == -signal.SIGKILL


def test_a_failed_test_is_told_where_it_waits(program: Path) -> None:
    with Driver(program, ["0"], program.with_name("errors")) as driver:
        with pytest.raises(TimeoutError, match=rf'File "{program}", line 5 in <module>'):
            driver.wait_line("never", timeout_s=0.1)
        driver.finish()

"""A program in a process of its own, forked from one that has imported what programs need."""

from __future__ import annotations

import signal
import tempfile
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


SPARK_PROGRAM = """
import sys
from pyspark import SparkConf, SparkContext
name = "spark.python.unix.domain.socket.dir"
conf = SparkConf().setMaster("local[1]")
sc = SparkContext(conf=conf.set(name, sys.argv[1]) if len(sys.argv) > 1 else conf)
print(sc.getConf().get(name), flush=True)
sc.stop()
"""


@pytest.mark.spark
def test_a_jvm_keeps_no_setting_of_the_program_before(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPARK_PROGRAM)
    seen = []
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        for arguments in ([], [folder], []):
            with Driver(program, arguments, tmp_path / "errors") as driver:
                seen.append(driver.wait_line("/"))
                driver.finish()
    assert seen == [seen[0], folder, seen[0]]

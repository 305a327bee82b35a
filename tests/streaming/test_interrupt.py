"""Ctrl-C while a job hangs: no traceback, and nothing that was received is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = "tests.streaming.interrupted_program"
LINES = [f"line {number}" for number in range(500)]


def test_a_job_that_hangs_is_cut_off_and_runs_again(tmp_path: Path) -> None:
    log, sink = tmp_path / "app.log", tmp_path / "sink"
    log.write_text("".join(f"{line}\n" for line in LINES))
    args = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        PROGRAM,
        str(tmp_path / "checkpoint"),
        str(log),
        str(sink),
    ]
    (tmp_path / "hang").touch()
    process = start(args, tmp_path / "first")
    try:
        assert eventually(lambda: (tmp_path / "hang.reached").exists())
        begun = len((tmp_path / "first").read_text())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the JVM is in the group
        assert exit_code(process, tmp_path / "first") == 130
    finally:
        process.kill()
        process.wait()
    told = (tmp_path / "first").read_text()[begun:]
    assert "SIGINT: stopping. Received records are kept" in told
    assert "1 job(s) did not end within 2 s: cancelled" in told
    assert "Traceback" not in told
    assert not sink.exists()

    (tmp_path / "hang").unlink()
    process = start(args, tmp_path / "second")
    try:
        assert eventually(lambda: sink.exists()), (tmp_path / "second").read_text()
        os.killpg(process.pid, signal.SIGINT)
        assert exit_code(process, tmp_path / "second") == 130
    finally:
        process.kill()
        process.wait()
    assert sink.read_text().splitlines() == LINES


def start(args: list[str], output: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}  # its workers are of its session
    with output.open("wb") as file:
        return subprocess.Popen(
            args, stdout=file, stderr=file, start_new_session=True, env=environment
        )


def exit_code(process: subprocess.Popen[bytes], output: Path) -> int:
    """Wait for a program to end; fail with its threads if it does not."""
    try:
        return process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler prints them
        process.wait()
        raise AssertionError(output.read_text()) from None

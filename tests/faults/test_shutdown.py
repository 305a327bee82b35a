"""spark.streaming.stopGracefullyOnShutdown, with real processes that get a real SIGTERM.

The batch interval is a day and more, so what was received is lost in the sink unless the stop is
graceful and makes a batch of it.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.durable import wait_durable
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = "tests.faults.shutdown_program"
TRACEBACK = re.compile(r"^Traceback .*\n\s*(File .*)", re.MULTILINE)
LINES = [f"line {number}" for number in range(2000)]


@pytest.mark.parametrize("how", ["await", "exit"])
def test_all_that_was_received_is_processed(how: str, tmp_path: Path) -> None:
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        args = [sys.executable, "-m", PROGRAM, how, str(checkpoint), str(port), str(sink)]
        with (tmp_path / "errors").open("wb") as errors:
            process = subprocess.Popen(
                args,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdin is not None
            server.settimeout(WAIT_S)
            client, _ = server.accept()
            with client:
                client.sendall("".join(f"{line}\n" for line in LINES).encode())
                wait_durable(checkpoint, "lines", len(LINES))
                if how == "exit":
                    process.stdin.close()
                    process.stdin = None
                else:
                    process.send_signal(signal.SIGTERM)
                    process.send_signal(signal.SIGTERM)  # impatient: changes nothing
                printed, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
            process.wait()
    log = (tmp_path / "errors").read_text()
    assert process.returncode == (0 if how == "exit" else 143), log
    assert printed.decode().split() == ["started", "finally"]
    # pyspark's idle workers may complain that the JVM, which ended first, is gone
    assert [file for file in TRACEBACK.findall(log) if "/pyspark/daemon.py" not in file] == [], log
    assert sink.read_text().splitlines() == LINES
    taken = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert sum(taken["lines"].values()) == len(LINES)
    assert (checkpoint / "commits" / "0").exists()

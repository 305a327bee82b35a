"""``penstock ui``, and the dashboard of ``penstock ingest``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.ingest_process import ingest
from tests.ui.served import locations, url_in
from tests.ui.world import Batches, program
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow


def test_it_serves_what_it_is_given_until_a_signal(tmp_path: Path) -> None:
    program(tmp_path / "orders", Batches(5))
    command = "from penstock.cli.main import main; main()"
    line = [sys.executable, "-c", command, "ui", str(tmp_path / "orders"), "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = re.findall(r"http://\S+", process.stdout.readline())[0]
            (status,) = locations(url)
            assert (status["name"], len(status["batches"])) == ("orders", 5)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


def test_ingest_serves_its_journal(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("a\nb\n")
    to = ["--journal", str(tmp_path / "journal"), "--stream", "clicks", "--ui-port", "0"]
    with ingest(tmp_path, "one", "tail", str(log), *to) as process:
        process.wait_receiving()
        url = url_in(process.log())
        assert eventually(lambda: locations(url)[0]["streams"][0]["records"] == 2)
        (status,) = locations(url)
        (receiver,) = status["streams"][0]["receivers"]
        assert (receiver["state"], receiver["process"]["pid"]) == ("started", process.pid)
        assert process.drain() == 0


def test_without_the_extra_it_says_so(tmp_path: Path) -> None:
    program(tmp_path / "orders", Batches(2))
    hidden = "import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None; "
    command = f"{hidden}from penstock.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "ui", str(tmp_path / "orders")],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    assert "pip install 'penstock-spark[ui]'" in done.stderr


def test_other_hosts_need_a_token(tmp_path: Path) -> None:
    error = Commands("ui").fail(str(tmp_path), "--host", "0.0.0.0")
    assert "no token" in str(error)

"""Programs whose location is on HDFS by its path alone: the README's, and RDD checkpoints."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hdfs_native import Client

from penstock.journal import JournalStream
from penstock.storage import open_storage
from tests.faults.test_window_kills import kill_in_windows
from tests.free_port import free_port
from tests.hdfs.cluster import Cluster
from tests.ingest_process import ingest
from tests.journal.helpers import read_all
from tests.test_readme import programs
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.xdist_group("hdfs")]

_SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"


@contextmanager
def running(code: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) is not None


def test_the_first_two_of_the_readme(hdfs: Cluster, folder: str, tmp_path: Path) -> None:
    path, port = folder.removeprefix(hdfs.url), free_port()
    (tmp_path / "app.log").write_text("all is well\nan error came\n")
    first, http, _ = programs()
    first = first.replace("local[2]", "local[3]")  # for two receivers
    first = first.replace("/tmp/errors", folder).replace("/var/log", str(tmp_path))
    http = http.replace("/tmp/slow", f"{folder}/slow").replace("8080", str(port))
    code = first.replace("ssc.start()", f"{http}\nssc.start()")
    files, log = Client(hdfs.url), tmp_path / "log.txt"

    def written(output: str) -> bool:
        return bool(files.glob_status(f"{path}/{output}/batch=*/_SUCCESS"))

    with running(code, log):
        assert eventually(lambda: written("out"), 120), log.read_text()[-3000:]
        sent = {"page": "/", "ms": 120}
        assert httpx.post(f"http://127.0.0.1:{port}", json=sent, timeout=60).status_code == 200
        assert eventually(lambda: written("slow"), 120), log.read_text()[-3000:]
    assert open_storage(f"{folder}/checkpoint").names("commits")


def test_the_third_of_the_readme(folder: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("a\nb\na\n")
    source = ["tail", str(tmp_path / "app.log"), "--journal", f"{folder}/journal"]
    with ingest(tmp_path, "ingest", *source, "--stream", "clicks"):
        journal = open_storage(f"{folder}/journal")
        assert eventually(lambda: journal.exists("clicks/stream.json"))
        assert eventually(lambda: len(read_all(JournalStream.open(journal, "clicks"))) == 3)
        code, log = _SESSION + programs()[2].replace("/data", folder), tmp_path / "log.txt"
        with running(code, log):
            assert eventually(lambda: "|    a|    2|" in log.read_text(), 120), log.read_text()
    assert open_storage(f"{folder}/count").names("commits")


def test_windows_with_rdd_checkpoints(folder: str, tmp_path: Path) -> None:
    kill_in_windows(tmp_path, f"{folder}/program")
    assert open_storage(f"{folder}/program").list("rdds")

"""Spark's own example programs run as they are, but for the import.

They ship with pyspark. Each runs in a process of its own, against a real socket or directory.
"""

from __future__ import annotations

import inspect
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from penstock.streaming import DStream, StreamingContext
from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = Path(pyspark.__file__).parent.joinpath("examples", "src", "main", "python", "streaming")
TESTED = {
    "hdfs_wordcount",
    "network_wordcount",
    "network_wordjoinsentiments",
    "queue_stream",
    "recoverable_network_wordcount",
    "sql_network_wordcount",
    "stateful_network_wordcount",
}
SETTINGS = " ".join(
    f"--conf {setting}"
    for setting in (
        "spark.master=local[2]",
        "spark.default.parallelism=2",
        "spark.sql.shuffle.partitions=1",
        "spark.streaming.gracefulStopTimeout=2min",  # slow machines
        "spark.ui.enabled=false",
        "spark.ui.showConsoleProgress=false",
    )
)
IMPORT = re.compile(r"^from pyspark\.streaming import", re.MULTILINE)


class LineServer:
    """Sends the same text to everyone who connects, and keeps the connection open."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._socket.getsockname()[1])
        self.text = ""
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the end of the test
            while True:
                client, _ = self._socket.accept()
                self._clients.append(client)
                client.sendall(self.text.encode())

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        for each in (self._socket, *self._clients):
            each.close()


@pytest.fixture
def server() -> Iterator[LineServer]:
    server = LineServer()
    yield server
    server.close()


class Example:
    """A running example."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, *texts: str) -> None:
        assert eventually(
            lambda: all(text in self.printed for text in texts) or self.process.poll() is not None
        ), self.printed[-3000:]
        assert all(text in self.printed for text in texts), self.printed[-3000:]


@contextmanager
def running(name: str, folder: Path, *args: str) -> Iterator[Example]:
    source, changed = IMPORT.subn(
        "from penstock.streaming import", (EXAMPLES / f"{name}.py").read_text()
    )
    assert changed == 1
    (folder / f"{name}.py").write_text(source)
    output = folder / f"{name}.out"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, f"{name}.py", *args],
            cwd=folder,
            env={
                **os.environ,
                "PYSPARK_SUBMIT_ARGS": f"{SETTINGS} pyspark-shell",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=file,
            stderr=file,
        )
    try:
        yield Example(process, output)
    finally:
        process.kill()
        process.wait()


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"} == TESTED


def test_network_wordcount(tmp_path: Path, server: LineServer) -> None:
    server.text = "to be or\nnot to be\n"
    with running("network_wordcount", tmp_path, "127.0.0.1", server.port) as example:
        example.wait_for("('to', 2)", "('be', 2)", "('or', 1)", "('not', 1)", "Time: ")


def test_hdfs_wordcount(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "before").write_text("no no no")
    with running("hdfs_wordcount", tmp_path, str(inbox)) as example:
        example.wait_for("Time: ")
        (tmp_path / "coming").write_text("file by file\n")
        (tmp_path / "coming").touch()
        (tmp_path / "coming").rename(inbox / "coming")
        example.wait_for("('file', 2)", "('by', 1)")
        assert "'no'" not in example.printed


def test_network_wordjoinsentiments(tmp_path: Path, server: LineServer) -> None:
    # The list that ships has tabs where the example looks for blanks.
    words = tmp_path / "data" / "streaming" / "AFINN-111.txt"
    words.parent.mkdir(parents=True)
    words.write_text("superb 5\nbad -3\n")
    server.text = "superb superb bad words\n"
    with running("network_wordjoinsentiments", tmp_path, "127.0.0.1", server.port) as example:
        example.wait_for("(2 total):\nsuperb (10 happiness)\nbad (-3 happiness)")


def test_queue_stream(tmp_path: Path) -> None:
    with running("queue_stream", tmp_path) as example:
        example.process.wait(WAIT_S)
        assert example.process.returncode == 0, example.printed[-3000:]
        for digit in range(10):
            assert example.printed.count(f"({digit}, 100)") == 5


def test_sql_network_wordcount(tmp_path: Path, server: LineServer) -> None:
    server.text = "sql sql words\n"
    with running("sql_network_wordcount", tmp_path, "127.0.0.1", server.port) as example:
        example.wait_for("=========", "|  sql|    2|", "|words|    1|")


@pytest.mark.skipif(
    not hasattr(DStream, "updateStateByKey"), reason="DStream.updateStateByKey is not there yet"
)
def test_stateful_network_wordcount(tmp_path: Path, server: LineServer) -> None:
    server.text = "hello hello you\n"
    with running("stateful_network_wordcount", tmp_path, "127.0.0.1", server.port) as example:
        example.wait_for("('hello', 3)", "('world', 1)", "('you', 1)")


def start_recoverable(
    tmp_path: Path, server: LineServer
) -> Callable[[], AbstractContextManager[Example]]:
    args = ("127.0.0.1", server.port, str(tmp_path / "checkpoint"), str(tmp_path / "counts"))
    return lambda: running("recoverable_network_wordcount", tmp_path, *args)


def test_recoverable_network_wordcount(tmp_path: Path, server: LineServer) -> None:
    server.text = "a word a day\n"
    start = start_recoverable(tmp_path, server)
    with start() as example:
        example.wait_for("Creating new context", "Dropped 2 word(s) totally")
        counts = (tmp_path / "counts").read_text()
        assert "('word', 1)" in counts
        assert "('a'" not in counts


@pytest.mark.skipif(
    "recover" not in inspect.signature(StreamingContext.getOrCreate).parameters,
    reason="StreamingContext.getOrCreate does not read graph checkpoints yet",
)
def test_recoverable_network_wordcount_is_recovered(tmp_path: Path, server: LineServer) -> None:
    start = start_recoverable(tmp_path, server)
    server.text = "first\n"
    with start() as example:
        example.wait_for("Creating new context", "('first', 1)")
        commits = tmp_path / "checkpoint" / "commits"
        assert eventually(lambda: len(list(commits.glob("[0-9]*"))) > 1)
    server.text = "second\n"
    with start() as example:
        example.wait_for("('second', 1)")
        assert "Creating new context" not in example.printed
    counts = (tmp_path / "counts").read_text()
    assert counts.count("('first', 1)") == 1

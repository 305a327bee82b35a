"""Spark's own example programs run as they are, but for the import.

They ship with pyspark. Each is the main program of a process, against a real socket or directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.examples import Example, Examples, LineServer
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("examples")]

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
IMPORT = re.compile(r"^from pyspark\.streaming import", re.MULTILINE)


@pytest.fixture
def server() -> Iterator[LineServer]:
    server = LineServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    with Examples(tmp_path_factory.mktemp("examples")) as examples:
        yield examples


def start(examples: Examples, name: str, *args: str) -> Example:
    program = examples.folder / f"{name}.py"
    source, changed = IMPORT.subn(
        "from penstock.streaming import", (EXAMPLES / program.name).read_text()
    )
    assert changed == 1
    program.write_text(source)
    return examples.start(program, *args)


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"} == TESTED


def test_network_wordcount(examples: Examples, server: LineServer) -> None:
    server.text = "to be or\nnot to be\n"
    example = start(examples, "network_wordcount", "127.0.0.1", server.port)
    example.wait_for("('to', 2)", "('be', 2)", "('or', 1)", "('not', 1)", "Time: ")
    examples.stop()


def test_hdfs_wordcount(examples: Examples, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "before").write_text("no no no")
    example = start(examples, "hdfs_wordcount", str(inbox))
    example.wait_for("Time: ")
    (tmp_path / "coming").write_text("file by file\n")
    (tmp_path / "coming").touch()
    (tmp_path / "coming").rename(inbox / "coming")
    example.wait_for("('file', 2)", "('by', 1)")
    assert "'no'" not in example.printed
    examples.stop()


def test_network_wordjoinsentiments(examples: Examples, server: LineServer) -> None:
    # The list that ships has tabs where the example looks for blanks.
    words = examples.folder / "data" / "streaming" / "AFINN-111.txt"
    words.parent.mkdir(parents=True)
    words.write_text("superb 5\nbad -3\n")
    server.text = "superb superb bad words\n"
    example = start(examples, "network_wordjoinsentiments", "127.0.0.1", server.port)
    example.wait_for("(2 total):\nsuperb (10 happiness)\nbad (-3 happiness)")
    examples.stop()


def test_queue_stream(examples: Examples) -> None:
    example = start(examples, "queue_stream")
    examples.wait_ended()  # it stops by itself
    for digit in range(10):
        assert example.printed.count(f"({digit}, 100)") == 5


def test_sql_network_wordcount(examples: Examples, server: LineServer) -> None:
    server.text = "sql sql words\n"
    example = start(examples, "sql_network_wordcount", "127.0.0.1", server.port)
    example.wait_for("=========", "|  sql|    2|", "|words|    1|")
    examples.stop()


def test_stateful_network_wordcount(examples: Examples, server: LineServer) -> None:
    server.text = "hello hello you\n"
    example = start(examples, "stateful_network_wordcount", "127.0.0.1", server.port)
    example.wait_for("('hello', 3)", "('world', 1)", "('you', 1)")
    examples.stop()


def test_recoverable_network_wordcount(tmp_path: Path, server: LineServer) -> None:
    """It is killed, and another process goes on with what the checkpoint location tells."""
    counts, commits = tmp_path / "counts", tmp_path / "checkpoint" / "commits"

    def committed() -> int:
        return len(list(commits.glob("[0-9]*")))

    args = ["127.0.0.1", server.port, str(tmp_path / "checkpoint"), str(counts)]
    server.text = "a word a day\n"
    with Examples(tmp_path) as examples:
        example = start(examples, "recoverable_network_wordcount", *args)
        example.wait_for("Creating new context", "Dropped 2 word(s) totally")
        assert eventually(lambda: "('word', 1)" in counts.read_text())  # it prints first
        assert "('a'" not in counts.read_text()
        before = committed()
        assert eventually(lambda: committed() > before)  # also the batch of these words
    server.text = "second\n"
    with Examples(tmp_path) as examples:
        example = start(examples, "recoverable_network_wordcount", *args)
        example.wait_for("('second', 1)")
        assert "Creating new context" not in example.printed
    assert counts.read_text().count("('word', 1)") == 1

"""``penstock journal consumers``: who holds blocks back, and forgetting one that is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat, commit_consumer, consumers
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks

run = Commands("journal", "consumers").run


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    stream = JournalStream.create(open_storage(tmp_path), "clicks", RecordFormat("string"))
    writer = write_blocks(stream, [["a"], ["b"]])
    commit_consumer(stream, "query", {str(writer): 1})
    commit_consumer(stream, "job", {})
    return stream


def test_ls(stream: JournalStream, tmp_path: Path) -> None:
    rows = run("ls", str(tmp_path)).output.splitlines()
    assert rows == [
        "stream  consumer  records behind",
        "clicks  job                    2",
        "clicks  query                  1",
    ]


def test_ls_of_none(tmp_path: Path) -> None:
    assert run("ls", str(tmp_path)).output == "no consumers\n"


def test_one_whose_file_is_damaged_is_named_and_can_be_removed(
    stream: JournalStream, tmp_path: Path
) -> None:
    stream.storage.create("clicks/consumers/job.json", b"{", overwrite=True)
    listed = run("ls", str(tmp_path)).output
    assert "DAMAGED" in listed
    assert "consumers/job.json" in listed
    assert "removed job" in run("rm", str(tmp_path), "clicks", "job").output
    assert list(consumers(stream)) == ["query"]


def test_ls_as_json(stream: JournalStream, tmp_path: Path) -> None:
    listed = json.loads(run("ls", str(tmp_path), "clicks", "--json").output)
    assert {c["consumer"]: c["lag"] for c in listed["clicks"]} == {"job": 2, "query": 1}


def test_rm(stream: JournalStream, tmp_path: Path) -> None:
    assert "removed job" in run("rm", str(tmp_path), "clicks", "job").output
    assert list(consumers(stream)) == ["query"]
    error = run("rm", str(tmp_path), "clicks", "job").exception
    assert isinstance(error, ConfigError)
    assert "name one of: query" in str(error)

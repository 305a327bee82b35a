"""``penstock journal consumers``: who holds blocks back, and forgetting one that is gone."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat, commit_consumer, consumers
from penstock.journal.retention.registration import register_consumer
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks

run = Commands("journal", "consumers").run


def ls(path: Path) -> list[str]:
    """Return the lines that are printed, without the titles."""
    return run("ls", str(path)).output.splitlines()[1:]


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
        "stream  consumer  records behind  last commit  process  location",
        "clicks  job                    2  -            -        -",
        "clicks  query                  1  -            -        -",
    ]


def test_ls_tells_a_consumer_s_program(stream: JournalStream, tmp_path: Path) -> None:
    """Its checkpoint location, the process that last wrote, and when it last committed."""
    here = socket.gethostname()
    program = register_consumer(stream, "program", "me", location="file:///data/report")
    register_consumer(stream, "idle", "you", location="s3://bucket/other").commit({})
    path = "clicks/consumers/idle.json"
    now_ms = time.time_ns() // 1_000_000
    for pid, host, age_s, told in [
        (4712, here, 190, f"3.2 min ago 4712 on {here}"),
        (4711, "away", 7300, "2 h ago 4711 on away"),
        (4711, "away", 3 * 86_400 + 5, "3 days ago 4711 on away"),
    ]:
        fields = json.loads(stream.storage.read(path))
        fields["program"] |= {"pid": pid, "host": host, "committed_ms": now_ms - age_s * 1000}
        stream.storage.create(path, json.dumps(fields).encode(), overwrite=True)
        rows = {row.split()[1]: " ".join(row.split()) for row in ls(tmp_path)}
        assert rows["idle"] == f"clicks idle 2 {told} s3://bucket/other"
        assert rows["program"] == (
            f"clicks program 2 none yet {os.getpid()} on {here} file:///data/report"
        )
    program.commit({})
    (row,) = (" ".join(row.split()) for row in ls(tmp_path) if "program" in row)
    assert re.search(rf"(just now|\d+ s ago) {os.getpid()} on {here}", row)


def test_a_file_that_tells_no_program_is_listed(stream: JournalStream, tmp_path: Path) -> None:
    fields = {"offsets": {}, "owner": "me", "program": None}
    path = "clicks/consumers/old.json"
    stream.storage.create(path, json.dumps(fields).encode())
    assert "clicks  old                    2  -            -        -" in ls(tmp_path)


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
    assert {c["name"]: c["lag_records"] for c in listed["clicks"]} == {"job": 2, "query": 1}


def test_rm(stream: JournalStream, tmp_path: Path) -> None:
    assert "removed job" in run("rm", str(tmp_path), "clicks", "job").output
    assert list(consumers(stream)) == ["query"]
    error = run("rm", str(tmp_path), "clicks", "job").exception
    assert isinstance(error, ConfigError)
    assert "name one of: query" in str(error)

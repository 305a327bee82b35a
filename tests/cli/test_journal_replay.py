"""``penstock journal replay`` over real journals."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.bad_records.dead_letters import DeadLetter, DeadLetterFolder
from penstock.model import OffsetRange
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import read_all, write_blocks

WRITER = "r0-00000000"


run = Commands("journal", columns=160).run


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    storage = open_storage(tmp_path)
    stream = JournalStream.create(storage, "lines", RecordFormat("string"))
    write_blocks(stream, [["a", "b", "c"]])
    return stream


@pytest.fixture(autouse=True)
def dead(stream: JournalStream) -> DeadLetterFolder:
    dead = DeadLetterFolder.create(stream.storage, stream.name)
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for at, error in enumerate(["ValueError", "KeyError", "ValueError"]):
        letter = DeadLetter(f"raw {at}".encode(), error, "bad", WRITER, at, now)
        dead.store(OffsetRange(WRITER, at, at + 1), [letter])
    return dead


def test_dry_run_counts_by_error_and_changes_nothing(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = run("replay", str(tmp_path), "lines-dead", "--dry-run")
    assert done.output.splitlines() == [
        "3 dead letters of lines-dead would go into stream lines",
        "  2 ValueError",
        "  1 KeyError",
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_letters_go_back_and_ls_tells_of_them(tmp_path: Path, stream: JournalStream) -> None:
    assert "lines-dead: 3 dead letters wait" in run("ls", str(tmp_path)).output
    assert json.loads(run("ls", str(tmp_path), "--json").output)["dead_letters"] == {
        "lines-dead": 3
    }
    done = run("replay", str(tmp_path), "lines-dead", "--max-files", "2")
    assert "2 dead letters of lines-dead were fed into stream lines" in done.output
    assert "1 dead letters" in run("replay", str(tmp_path), "lines-dead").output
    assert read_all(stream) == ["a", "b", "c", "raw 0", "raw 1", "raw 2"]
    assert "wait" not in run("ls", str(tmp_path)).output
    assert run("verify", str(tmp_path)).exit_code == 0


def test_cat_prints_them_and_verify_checks_them(tmp_path: Path, dead: DeadLetterFolder) -> None:
    lines = run("cat", str(tmp_path), "lines-dead").output.splitlines()
    assert [json.loads(line)["error_type"] for line in lines] == [
        "ValueError",
        "KeyError",
        "ValueError",
    ]
    (line,) = run("cat", str(tmp_path), "lines-dead", "--json", "--limit", "1").output.splitlines()
    assert json.loads(line)["writer"] == WRITER
    path = tmp_path / "lines-dead" / dead.waiting()[0].name
    path.write_bytes(path.read_bytes()[:-1])
    done = run("verify", str(tmp_path))
    assert "DAMAGED lines-dead" in done.output
    assert done.exit_code == 1


def test_json_says_what_waits_and_what_was_fed(tmp_path: Path) -> None:
    where = {"stream": "lines-dead", "to": "lines"}
    waiting = json.loads(run("replay", str(tmp_path), "lines-dead", "--dry-run", "--json").output)
    assert waiting == {**where, "waiting": {"ValueError": 2, "KeyError": 1}}
    fed = json.loads(run("replay", str(tmp_path), "lines-dead", "--json").output)
    assert fed == {**where, "fed": 3}


def test_into_another_stream(tmp_path: Path, stream: JournalStream) -> None:
    twin = JournalStream.create(stream.storage, "twin", stream.format)
    done = run("replay", str(tmp_path), "lines-dead", "--to", "twin")
    assert "3 dead letters of lines-dead were fed into stream twin" in done.output
    assert read_all(twin) == ["raw 0", "raw 1", "raw 2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lines"], "not a folder of dead letters"),
        (["none-dead"], "stream 'none' does not exist"),
        (["lines-dead", "--to", "none"], "stream 'none' does not exist"),
    ],
)
def test_wrong_streams_are_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run("replay", str(tmp_path), *arguments)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)

"""What is shown of a checkpoint path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.batched.inspection import TopicFacts, inspect_path, is_checkpoint_path
from penstock.errors import ConfigError
from tests.cli.commands import Commands

from .test_checkpoints import a, b, opened, read, run

CHECKPOINT = Commands("checkpoint")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path with three checkpoints of a, one of b, and a batch that was only read."""
    path = tmp_path / "path"
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, a(0, 6), a(0, 2, 1), b(0, 4))
        run(checkpoints, a(6, 9))
        run(checkpoints, a(9, 12))
        checkpoints.begin([a(12, 15)])
        read(path, a(12, 15))
    return path


def test_which_folders_are_checkpoint_paths(path: Path, tmp_path: Path) -> None:
    assert is_checkpoint_path(path)
    (tmp_path / "query/offsets").mkdir(parents=True)
    (tmp_path / "query/offsets/0").write_text("v1")
    (tmp_path / "other/folder").mkdir(parents=True)
    (tmp_path / "other/folder/notes.txt").write_text("1")
    assert not is_checkpoint_path(tmp_path / "query")
    assert not is_checkpoint_path(tmp_path / "other")
    assert not is_checkpoint_path(tmp_path / "nowhere")
    for topic in ("offsets", "commits", "metadata", "sources"):
        (tmp_path / topic / topic).mkdir(parents=True)
        (tmp_path / topic / topic / "1.txt").write_text("{}")
        assert is_checkpoint_path(tmp_path / topic)


def test_where_a_program_stands(path: Path) -> None:
    found = inspect_path(path)
    assert found.is_dirty
    assert found.topics == (
        TopicFacts("a", 3, 3, {0: 11, 1: 1}, {0: 14}),
        TopicFacts("b", 1, 1, {0: 3}, {}),
    )
    assert found.findings == ()
    lines = CHECKPOINT.succeed("inspect", str(path)).splitlines()
    assert lines[1] == "batches of Kafka topics; records were read that no checkpoint has"
    assert [line.split() for line in lines[3:]] == [
        ["topic", "checkpoint", "kept", "partition", "done", "read"],
        ["a", "3", "3", "0", "11", "14"],
        ["a", "3", "3", "1", "1", "-"],
        ["b", "1", "1", "0", "3", "-"],
    ]
    topic, _ = json.loads(CHECKPOINT.succeed("inspect", str(path), "--json"))["topics"]
    assert topic["done"] == {"0": 11, "1": 1}


def test_what_is_damaged(path: Path) -> None:
    (path / "a/4.txt").write_text('{"0": 1')
    (path / "a/notes").write_text("")
    shown = CHECKPOINT.succeed("inspect", str(path))
    assert "WARNING a/4.txt: " in shown
    assert "WARNING a/notes: it is not a checkpoint\n  this means: it is passed over" in shown
    (path / "b/1.txt").write_text("x")
    done = CHECKPOINT.run("inspect", str(path))
    assert done.exit_code == 2
    assert "ERROR b: none of its files is a sound checkpoint" in done.output
    assert "a  " in done.output


@pytest.mark.parametrize(
    "command", [("rewind", "--shift-by", "1"), ("rewind", "--to-batch", "1"), ("promote", "1")]
)
def test_no_command_changes_it(path: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    error = CHECKPOINT.fail(name, str(path), *options, "--apply")
    assert isinstance(error, ConfigError)
    assert "delete the newest <topic>/<N>.txt of each topic" in str(error)


def test_going_back_by_deleting_the_newest_checkpoints(path: Path) -> None:
    (path / "a/3.txt").unlink()
    (path / "a/2.txt").unlink()
    (path / "b/2.txt").write_text("{0: 9}")  # and forward, by one more
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, a(6, 9))
    assert json.loads((path / "a/2.txt").read_text()) == {"0": 8, "1": 1}
    assert inspect_path(path).topics[1].done == {0: 9}

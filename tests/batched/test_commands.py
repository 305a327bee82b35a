"""``penstock checkpoint`` on a checkpoint path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Commands

from .test_checkpoints import a, opened, read, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "path"
    with opened(path, "a") as checkpoints:
        run(checkpoints, a(0, 6), a(0, 2, 1))
        run(checkpoints, a(6, 9))
        checkpoints.begin([a(9, 12)])
        read(path, a(9, 12))
    return path


CHECKPOINT = Commands("checkpoint")


def test_inspect(path: Path) -> None:
    lines = CHECKPOINT.succeed("inspect", str(path)).splitlines()
    assert lines[1] == "batches of Kafka topics; records were read that no checkpoint has"
    assert [line.split() for line in lines[3:]] == [
        ["topic", "checkpoint", "kept", "partition", "done", "read"],
        ["a", "2", "2", "0", "8", "11"],
        ["a", "2", "2", "1", "1", "-"],
    ]
    (topic,) = json.loads(CHECKPOINT.succeed("inspect", str(path), "--json"))["topics"]
    assert topic["done"] == {"0": 8, "1": 1}


def test_validate(path: Path) -> None:
    assert CHECKPOINT.succeed("validate", str(path)).endswith("files, sound\n")
    (path / "a/3.txt").write_text("")
    done = CHECKPOINT.run("validate", str(path))
    assert done.exit_code == 1
    assert "WARNING a/3.txt\n" in done.output
    assert "the program continues after checkpoint 2" in done.output


def test_rewind_and_promote(path: Path) -> None:
    planned = CHECKPOINT.succeed("rewind", str(path), "--shift-by", "1")
    assert "create a/3.txt\n  partition 0: offsets 6 to 8 are processed again\n" in planned
    assert "add --apply" in planned
    assert not (path / "a/3.txt").exists()
    assert "made a/3.txt" in CHECKPOINT.succeed("rewind", str(path), "--shift-by", "1", "--apply")
    assert json.loads((path / "a/3.txt").read_text()) == {"0": 5, "1": 1}
    CHECKPOINT.succeed("promote", str(path), "2", "--apply")
    assert json.loads((path / "a/4.txt").read_text()) == {"0": 8, "1": 1}
    offsets = ("--to-offsets", '{"a": {"0": 2}}')
    CHECKPOINT.succeed("rewind", str(path), *offsets, "--apply")
    assert json.loads((path / "a/5.txt").read_text()) == {"0": 2, "1": 1}
    CHECKPOINT.succeed("rewind", str(path), "--to-batch", "4", "--apply")
    assert json.loads((path / "a/6.txt").read_text()) == {"0": 8, "1": 1}
    assert "nothing is to be done" in CHECKPOINT.succeed("promote", str(path), "6")
    assert "there are two ways back" in str(
        CHECKPOINT.fail("rewind", str(path), "--to-batch", "4", *offsets)
    )
    assert "are not offsets of topics" in str(
        CHECKPOINT.fail("rewind", str(path), "--to-offsets", '{"a": 2}')
    )

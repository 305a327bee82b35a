"""What is shown of a checkpoint path, and how it goes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.inspection import (
    TopicFacts,
    inspect_path,
    is_checkpoint_path,
    validate_path,
)
from penstock.batched.rewind import apply_rewind, plan_promote, plan_rewind
from penstock.errors import ConcurrentDriverError, ConfigError
from penstock.kafka import KafkaRange

from .test_checkpoints import a, b, newest, opened, read, run


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


def ends(path: Path) -> object:
    checkpoints = Checkpoints(path)
    found = checkpoints.open(["a", "b"])
    checkpoints.close()
    return found


def test_which_folders_are_checkpoint_paths(path: Path, tmp_path: Path) -> None:
    assert is_checkpoint_path(path)
    (tmp_path / "query/offsets").mkdir(parents=True)
    (tmp_path / "query/offsets/0").write_text("v1")
    (tmp_path / "other/folder").mkdir(parents=True)
    (tmp_path / "other/folder/notes.txt").write_text("1")
    assert not is_checkpoint_path(tmp_path / "query")
    assert not is_checkpoint_path(tmp_path / "other")
    assert not is_checkpoint_path(tmp_path / "nowhere")


@pytest.mark.parametrize("topic", ["offsets", "commits", "metadata", "sources"])
def test_topics_with_the_names_of_queries_files(tmp_path: Path, topic: str) -> None:
    with opened(tmp_path, topic) as checkpoints:
        run(checkpoints, KafkaRange(topic, 0, 0, 4))
        run(checkpoints, KafkaRange(topic, 0, 4, 6))
    assert is_checkpoint_path(tmp_path)
    apply_rewind(tmp_path, plan_rewind(tmp_path, shift_by=1))
    assert newest(tmp_path, topic) == {"0": 3}


def test_where_a_program_stands(path: Path) -> None:
    found = inspect_path(path)
    assert found.is_dirty
    assert found.planned_batch is None
    assert found.topics == (
        TopicFacts("a", 3, 3, {0: 11, 1: 1}, {0: 14}),
        TopicFacts("b", 1, 1, {0: 3}, {}),
    )
    assert validate_path(path).findings == ()
    assert validate_path(path).severity is None


def test_what_is_damaged(path: Path) -> None:
    (path / "a/1.txt").write_text("")
    (path / "a/4.txt").write_text('{"0": 1')
    (path / "b/1.txt").write_text("x")
    (path / "b/notes").write_text("")
    (path / "planned").write_text("")
    found = validate_path(path)
    assert [(each.severity, each.path) for each in found.findings] == [
        ("note", "a/1.txt"),
        ("warning", "a/4.txt"),
        ("warning", "b/1.txt"),
        ("warning", "b/notes"),
        ("error", "b"),
        ("error", "planned"),
    ]
    assert "continues after checkpoint 3" in found.findings[1].meaning
    assert found.severity == "error"


def test_going_back_by_checkpoints(path: Path) -> None:
    (path / "planned").write_text("")
    with pytest.raises(ConfigError, match="b has 0 checkpoints before its newest one, not 1"):
        plan_rewind(path, shift_by=1)
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, b(4, 5))
    plan = plan_rewind(path, shift_by=1)
    assert ends(path) == {"a": {0: 12, 1: 2}, "b": {0: 5}}  # it is only a plan
    assert apply_rewind(path, plan) == ["a/4.txt", "b/3.txt"]
    assert ends(path) == {"a": {0: 9, 1: 2}, "b": {0: 4}}
    assert not (path / "planned").exists()
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, a(9, 10))
    assert newest(path, "a") == {"0": 9, "1": 1}
    assert (path / "a/5.txt").exists()


def test_going_back_to_offsets(path: Path) -> None:
    apply_rewind(path, plan_rewind(path, offsets={"a": {0: 7}}))
    assert ends(path) == {"a": {0: 8, 1: 2}, "b": {0: 4}}
    apply_rewind(path, plan_rewind(path, offsets={"b": {0: -1}}))
    assert json.loads((path / "b/2.txt").read_text()) == {"0": -1}
    for wrong in ({"a": {0: -2}}, {"a": {-1: 0}}):
        with pytest.raises(ConfigError, match="cannot be at"):
            plan_rewind(path, offsets=wrong)
    with pytest.raises(ConfigError, match="topic c has no sound checkpoint"):
        plan_rewind(path, offsets={"c": {0: 0}})


def test_promoting_a_checkpoint(path: Path) -> None:
    apply_rewind(path, plan_promote(path, 1))
    assert ends(path) == {"a": {0: 6, 1: 2}, "b": {0: 4}}
    apply_rewind(path, plan_promote(path, 1))
    assert not (path / "a/5.txt").exists()  # it is the newest already
    with pytest.raises(ConfigError, match=r"there is no b/3\.txt"):
        plan_promote(path, 3)


def test_a_program_that_runs_is_not_moved(path: Path) -> None:
    plan = plan_promote(path, 1)
    with opened(path, "a", "b"), pytest.raises(ConcurrentDriverError):
        apply_rewind(path, plan)
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, a(12, 13))
    with pytest.raises(ConcurrentDriverError, match=r"a/4\.txt was made since"):
        apply_rewind(path, plan)


def test_one_way_back_is_needed(path: Path) -> None:
    with pytest.raises(ConfigError, match="one way back is needed"):
        plan_rewind(path)

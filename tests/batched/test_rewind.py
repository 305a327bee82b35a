"""A way back over several topics: all of them, or none, whenever the command is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.inspection import inspect_path, validate_path
from penstock.batched.layout import (
    Move,
    Planned,
    Rewind,
    TopicEnds,
    dump_planned,
    dump_rewind,
    parse_rewind,
)
from penstock.batched.rewind import apply_rewind, plan_promote, plan_rewind
from penstock.errors import ConcurrentDriverError, ConfigError, LogFormatError
from penstock.storage import Storage, open_storage
from tests.strace import kill_points, needs_strace, traced

from .test_checkpoints import a, b, opened, run
from .test_kills import CHANGES

BEFORE = {"a": {0: 9, 1: 2}, "b": {0: 5}}
AFTER = {"a": {0: 6, 1: 2}, "b": {0: 4}}
PLANNED = dump_planned(Planned(str(uuid.UUID(int=1)), 3, (b(4, 5),)))


def prepare(path: Path | str) -> None:
    """Leave a path with two topics that can go back, and a batch that was planned."""
    with opened(path, "a", "b") as checkpoints:
        run(checkpoints, a(0, 6), a(0, 2, 1), b(0, 4))
        run(checkpoints, a(6, 9))
        run(checkpoints, b(4, 5))
    open_storage(path).create("planned", PLANNED)


def go_back(path: Path | str) -> list[str]:
    return apply_rewind(path, plan_rewind(path, shift_by=1))


def make_ready(path: str) -> Callable[[], object]:
    return partial(apply_rewind, path, plan_rewind(path, shift_by=1))


def stands(path: Path | str) -> Any:
    """Where a program begins."""
    checkpoints = Checkpoints(path)
    ends = checkpoints.open(["a", "b"])
    checkpoints.close()
    return ends


def check(path: Path | str) -> Any:
    """Start a program; return where it begins, which is where it was, or where it goes back to."""
    found = stands(path)
    storage = open_storage(path)
    assert found in (BEFORE, AFTER)
    assert storage.exists("planned") == (found == BEFORE)
    assert not storage.exists("rewind")
    return found


@pytest.mark.storm
@pytest.mark.slow
@needs_strace
def test_kill_at_each_system_call(tmp_path: Path) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(make_ready, (str(whole),), tmp_path / "log", CHANGES)
    assert check(whole) == AFTER
    found = []
    for number, point in enumerate(points):
        place, again = tmp_path / str(number), tmp_path / f"{number}-again"
        shutil.copytree(prepared, place)
        assert traced(make_ready, (str(place),), os.devnull, point) == -signal.SIGKILL, point
        shutil.copytree(place, again)
        found.append(check(place))
        if found[-1] == BEFORE or (again / "rewind").exists():
            go_back(again)  # the same command
            assert check(again) == AFTER
    assert found[0] == BEFORE
    assert found[-1] == AFTER


class KilledError(BaseException):
    """The end of a process."""


class Mortal:
    """A storage whose process is killed at its n-th change: before or after it takes effect."""

    def __init__(self, inner: Storage, at: int, *, done: bool) -> None:
        self._inner = inner
        self._left = at
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        self._change(partial(self._inner.create, path, data, overwrite=overwrite))

    def delete(self, path: str) -> None:
        self._change(partial(self._inner.delete, path))

    def _change(self, change: Callable[[], None]) -> None:
        self._left -= 1
        if self._left > 0:
            change()
        else:
            if self._done:
                change()
            raise KilledError


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """A store without locks."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/path"
    return f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}"


@pytest.mark.storm
@pytest.mark.parametrize("done", [False, True])
def test_kill_at_each_request(url: str, done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for at in range(1, 6):  # rewind, two checkpoints, planned, rewind
        path = f"{url}-{at}-{done}"
        prepare(path)
        mortal = Mortal(open_storage(path), at, done=done)
        with monkeypatch.context() as patched:
            patched.setattr("penstock.batched.rewind.open_storage", lambda _, m=mortal: m)
            with pytest.raises(KilledError):
                go_back(path)
        found.append(check(path))
    assert found == [AFTER if done else BEFORE, *[AFTER] * 4]


def to_new_topic(path: Path | str) -> Rewind:
    offsets = {"a": {0: 3, 1: 1}}
    return plan_rewind(path, offsets=offsets, topic_ids={"a": "new"})


@pytest.mark.parametrize("done", [False, True])
def test_a_kill_leaves_offsets_with_the_id_of_their_topic(
    done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for at in range(1, 6):  # rewind, the checkpoint, planned, topics, rewind
        url = f"memory://{uuid.uuid4().hex}/path"
        prepare(url)
        Checkpoints(url).note_topic_ids({"a": "old", "b": "its"})
        mortal = Mortal(open_storage(url), at, done=done)
        with monkeypatch.context() as patched:
            patched.setattr("penstock.batched.rewind.open_storage", lambda _, m=mortal: m)
            with pytest.raises(KilledError):
                apply_rewind(url, to_new_topic(url))
        stood = stands(url)
        ids = topic_ids(url)
        assert (stood["a"], ids) in [
            ({0: 9, 1: 2}, {"a": "old", "b": "its"}),
            ({0: 4, 1: 2}, {"a": "new", "b": "its"}),
        ]
        found.append(ids["a"])
    assert found == ["new" if done else "old", *["new"] * 4]


def test_a_command_that_wakes_up_leaves_the_ids_of_a_later_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"memory://{uuid.uuid4().hex}/path"
    prepare(url)
    Checkpoints(url).note_topic_ids({"a": "old", "b": "its"})

    class Slow(Mortal):
        def _change(self, change: Callable[[], None]) -> None:
            self._left -= 1
            change()
            if self._left == 0:  # it slept; a program came, and found which topic it is
                with opened(url, "a") as checkpoints:
                    checkpoints.note_topic_ids({"a": "new"})

    slow = Slow(open_storage(url), 2, done=True)
    monkeypatch.setattr("penstock.batched.rewind.open_storage", lambda _: slow)
    apply_rewind(url, plan_rewind(url, offsets={"a": {0: -1, 1: -1}}))
    assert topic_ids(url) == {"a": "new", "b": "its"}


def begin(path: Path | str) -> Storage:
    """Leave a rewind that was begun."""
    storage = open_storage(path)
    storage.create("rewind", dump_rewind(plan_rewind(path, shift_by=1)))
    return storage


def test_a_rewind_that_was_begun_is_told_and_completed_before_another(tmp_path: Path) -> None:
    prepare(tmp_path)
    begin(tmp_path)
    assert inspect_path(tmp_path).is_rewinding
    (finding,) = validate_path(tmp_path).findings
    assert (finding.severity, finding.path) == ("warning", "rewind")
    plan = plan_promote(tmp_path, 2)
    assert plan.is_begun
    assert apply_rewind(tmp_path, plan) == ["a/3.txt", "b/3.txt"]
    assert check(tmp_path) == AFTER


def test_a_program_that_runs_against_the_rule_keeps_its_checkpoint(url: str) -> None:
    prepare(url)
    begin(url)
    with opened(url) as checkpoints:  # completed: the program of before is still alive
        pass
    assert stands(url) == AFTER
    storage = begin(url)
    storage.create("b/4.txt", b'{"0": 7}')  # by that program
    with pytest.raises(ConcurrentDriverError, match=r"b/4\.txt was made since"):
        checkpoints.open(["a"])
    assert stands(url) == {**AFTER, "b": {0: 8}}  # a did not move either
    assert not storage.exists("rewind")


def test_a_command_that_wakes_up_leaves_what_a_later_program_planned(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(url)
    storage = open_storage(url)

    class Slow(Mortal):
        def _change(self, change: Callable[[], None]) -> None:
            self._left -= 1
            if self._left == 0:  # it slept; another command and a program came
                assert check(url) == AFTER
                storage.create("planned", b"later")
            change()

    slow = Slow(storage, 2, done=True)
    monkeypatch.setattr("penstock.batched.rewind.open_storage", lambda _: slow)
    go_back(url)
    assert storage.read("planned") == b"later"
    assert stands(url) == AFTER


def text_of(topic: str, number: object, after: object) -> bytes:
    move = {"number": number, "before": {}, "after": after}
    return json.dumps({"topics": {topic: move}, "planned": None}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"topics": {}}',
        text_of("..", 1, {}),
        text_of("planned", 1, {}),
        text_of("a", "../1", {}),
        text_of("a", 1, {"0": -5}),
    ],
)
def test_a_rewind_that_is_damaged_is_no_start(tmp_path: Path, text: bytes) -> None:
    prepare(tmp_path)
    (tmp_path / "rewind").write_bytes(text)
    with pytest.raises(LogFormatError, match="the file of a rewind is damaged"):
        Checkpoints(tmp_path).open(["a"])
    with pytest.raises(LogFormatError):
        go_back(tmp_path)
    assert validate_path(tmp_path).severity == "error"
    (tmp_path / "rewind").unlink()
    assert stands(tmp_path) == BEFORE


def test_the_text_of_a_rewind() -> None:
    move = Move(8, TopicEnds({0: 10}, "old"), TopicEnds({0: 6}))
    rewind = Rewind({"a": move}, None, is_begun=True)
    text = b'{"topics": {"a": {"number": 8, "before": {"0": 9}, "after": {"0": 5},'
    text += b' "ids": ["old", null]}}, "planned": null}'
    assert dump_rewind(rewind) == text
    assert parse_rewind(text) == rewind


def topic_ids(path: Path) -> dict[str, str]:
    checkpoints = Checkpoints(path)
    checkpoints.open(["a", "b"])
    checkpoints.close()
    return checkpoints.topic_ids()


def test_each_checkpoint_has_the_id_that_it_counts_in(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        checkpoints.note_topic_ids({"a": "old"})
        run(checkpoints, a(0, 6))
    apply_rewind(tmp_path, plan_rewind(tmp_path, offsets={"a": {0: 3}}, topic_ids={"a": "new"}))
    with opened(tmp_path, "a") as checkpoints:
        assert checkpoints.topic_ids() == {"a": "new"}
        run(checkpoints, a(4, 9))
    assert json.loads((tmp_path / "topics").read_text()) == {"a": {"0": "old", "2": "new"}}
    apply_rewind(tmp_path, plan_promote(tmp_path, 1))
    with opened(tmp_path, "a") as checkpoints:
        assert checkpoints.topic_ids() == {"a": "old"}
    (tmp_path / "a/4.txt").write_text("")  # damaged: the one before it counts
    with opened(tmp_path, "a") as checkpoints:
        assert checkpoints.topic_ids() == {"a": "new"}
        checkpoints.note_topic_ids({"a": "new"})
        run(checkpoints, a(9, 10))
    with opened(tmp_path, "a") as checkpoints:
        assert checkpoints.topic_ids() == {"a": "new"}
    assert plan_promote(tmp_path, 1).topics["a"].after == TopicEnds({0: 6}, "old")


def test_the_way_on_after_a_loss(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "topics").write_text('{"a": "of before"}')
    apply_rewind(tmp_path, plan_rewind(tmp_path, offsets={"a": {0: 20}}))
    assert stands(tmp_path) == {**BEFORE, "a": {0: 21, 1: 2}}
    assert (tmp_path / "topics").read_text() == '{"a": "of before"}'
    apply_rewind(tmp_path, plan_rewind(tmp_path, offsets={"a": {0: -1, 1: -1}}))
    assert json.loads((tmp_path / "topics").read_text()) == {"a": {"0": "of before", "4": None}}


def test_a_batch_that_waits_of_a_topic_that_stays(tmp_path: Path) -> None:
    prepare(tmp_path)
    waiting = Planned(str(uuid.UUID(int=1)), 3, (a(9, 12), b(5, 7)))
    (tmp_path / "planned").write_bytes(dump_planned(waiting))
    with pytest.raises(ConfigError, match="has records of b, which would not move"):
        plan_rewind(tmp_path, offsets={"a": {0: 3}})
    go_back(tmp_path)
    assert check(tmp_path) == AFTER


def test_a_batch_that_waits_is_left_where_the_checkpoints_are(tmp_path: Path) -> None:
    prepare(tmp_path)
    waiting = Planned(str(uuid.UUID(int=1)), 3, (a(9, 12), b(5, 7)))
    (tmp_path / "planned").write_bytes(dump_planned(waiting))
    made = apply_rewind(tmp_path, plan_rewind(tmp_path, offsets={"a": {0: 8}, "b": {0: 4}}))
    assert made == ["a/3.txt", "b/3.txt"]
    assert stands(tmp_path) == BEFORE
    assert not (tmp_path / "planned").exists()
    assert not plan_rewind(tmp_path, offsets={"a": {0: 8}}).topics  # nothing waits any more


def test_folders_of_others_do_not_matter(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/todo.txt").touch()
    go_back(tmp_path)
    assert check(tmp_path) == AFTER

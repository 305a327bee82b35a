"""Two commands on one location, at once or one after the other: neither destroys what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    Checkpoint,
    apply_fork,
    apply_plan,
    inspect,
    plan_fork,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.changes import apply, fork
from penstock.checkpoint.tools.changes.hold import Barrier
from penstock.errors import AlreadyExistsError, CheckpointError
from penstock.storage import open_storage
from tests.cli.commands import Commands

from .interruptions import interrupt
from .queries import copy_to_store, write_stateless
from .test_changes import files_of

BARRIER = "offsets/9223372036854775807"


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return write_stateless(tmp_path / "query", batches=5)


def contents_of(url: str) -> dict[str, object]:
    location = Checkpoint.open(url)
    return dict(location.read(path for path in location.files if not path.startswith("undo")))


def undo_of(url: str) -> str:
    (path,) = open_storage(url).find("undo")
    return f"{url}/{path}"


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, meanwhile: Callable[[], object]) -> None:
    """Have something happen once, before a step of the next change."""
    check, steps = Barrier.check, iter(range(number))

    def check_later(barrier: Barrier) -> None:
        if next(steps, None) is None:
            monkeypatch.setattr(Barrier, "check", check)
            meanwhile()
        check(barrier)

    monkeypatch.setattr(Barrier, "check", check_later)


def test_one_command_at_a_time_changes_a_location(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(query)
    undo = apply_plan(plan_rewind(query, to_batch=1))
    other = plan_undo(undo)

    def undo_too() -> None:
        with pytest.raises(CheckpointError, match=r"another .* command is changing"):
            apply_plan(other, stopped=True)

    at_step(monkeypatch, 2, undo_too)
    apply_plan(plan_undo(undo))
    assert files_of(query) == before


def test_without_locks_a_second_command_is_refused(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = copy_to_store(query)
    other = plan_rewind(url, to_batch=3)

    def rewind_too() -> None:
        with pytest.raises(CheckpointError, match="is not finished"):
            apply_plan(other)

    at_step(monkeypatch, 2, rewind_too)
    apply_plan(plan_rewind(url, to_batch=1))
    assert inspect(url).next.first == 7


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_without_locks_an_undo_is_told_that_the_command_has_ended(
    query: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The command may be between its check and its step, or between that and the end."""
    url = copy_to_store(query)
    before = contents_of(url)
    interrupt(plan_rewind(url, to_batch=1), monkeypatch, after=steps)
    half = contents_of(url)
    undo = ("undo", undo_of(url), "--apply")

    error = Commands("checkpoint").fail(*undo)
    assert isinstance(error, CheckpointError)
    assert "may still be at work: the storage has no locks" in str(error)
    assert "--stopped" in str(error)
    with pytest.raises(CheckpointError, match="is not finished"):
        plan_rewind(url, to_batch=2)
    assert contents_of(url) == half

    Commands("checkpoint").succeed(*undo, "--stopped")
    assert contents_of(url) == before
    apply_plan(plan_rewind(url, to_batch=2))
    assert inspect(url).next.problem is None


def test_a_command_that_was_overtaken_takes_no_further_step(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator was wrong: it slept, and wakes up."""
    url = copy_to_store(query)
    before = contents_of(url)

    def take_back() -> None:
        apply_plan(plan_undo(undo_of(url)), stopped=True)

    at_step(monkeypatch, 2, take_back)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(plan_rewind(url, to_batch=1))
    assert contents_of(url) == before


def test_an_undo_that_was_interrupted_is_repeated(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(query)
    undo = apply_plan(plan_rewind(query, to_batch=1))
    interrupt(plan_undo(undo), monkeypatch, after=3)
    assert inspect(query).next.problem is not None
    apply_plan(plan_undo(undo))
    assert files_of(query) == before


def test_answers_that_are_lost_do_no_harm(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may refuse the repeated request for what the first one has created."""
    url = copy_to_store(query)
    storage = open_storage(url)
    create = storage.create

    def create_twice(path: str, data: bytes, **options: bool) -> None:
        create(path, data, **options)
        if not path.startswith("undo"):
            raise AlreadyExistsError("it exists")

    monkeypatch.setattr(storage, "create", create_twice)
    monkeypatch.setattr(apply, "open_storage", lambda _: storage)
    apply_plan(plan_rewind(url, to_batch=1))
    assert inspect(url).next.first == 7


def test_a_file_that_a_query_wrote_is_not_removed(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = apply_plan(plan_rewind(query, to_batch=1))
    rewound = files_of(query)
    at_step(monkeypatch, 3, lambda: (query / "offsets/5").write_bytes(b"v1\n{}\n-"))
    with pytest.raises(CheckpointError, match="wrote the same file"):
        apply_plan(plan_undo(undo))
    assert files_of(query) == {**rewound, "offsets/5": b"v1\n{}\n-"}


def test_one_command_at_a_time_fills_a_location(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "fork")
    other, put = plan_fork(query, target), fork._put_file

    def fork_too(*args: object) -> None:
        monkeypatch.setattr(fork, "_put_file", put)
        with pytest.raises(CheckpointError, match="is not finished"):
            apply_fork(other)
        put(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(fork, "_put_file", fork_too)
    fork_id = apply_fork(plan_fork(query, target))
    assert inspect(target).id == fork_id
    assert validate(target).findings == ()

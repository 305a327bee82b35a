"""Two commands on one location, at once or one after the other: neither destroys what is there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import (
    Checkpoint,
    Plan,
    apply_fork,
    apply_import,
    apply_plan,
    describe_evidence,
    export_location,
    inspect,
    plan_fork,
    plan_import,
    plan_repair,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.changes import apply, fill, hold
from penstock.checkpoint.tools.changes.hold import Hold
from penstock.errors import AlreadyExistsError, CheckpointError, ConcurrentDriverError, ConfigError
from penstock.storage import open_storage

from .interruptions import interrupt
from .queries import write_stateless
from .test_changes import files_of, undo_files

BARRIER = "offsets/9223372036854775807"


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return write_stateless(tmp_path / "query", batches=5)


def remote_copy(query: Path) -> str:
    url = f"memory://{uuid.uuid4().hex}/query"
    apply_import(plan_import(export_location(query), url))
    return url


def contents_of(url: str) -> dict[str, object]:
    location = Checkpoint.open(url)
    return dict(location.read(path for path in location.files if not path.startswith("undo")))


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, meanwhile: Callable[[], object]) -> None:
    """Have something happen once, before a step of the next change."""
    check, steps = Hold.check, iter(range(number))

    def check_later(hold: Hold) -> None:
        if next(steps, None) is None:
            monkeypatch.setattr(Hold, "check", check)
            meanwhile()
        check(hold)

    monkeypatch.setattr(Hold, "check", check_later)


def at_copy(
    monkeypatch: pytest.MonkeyPatch, target: str, number: int, meanwhile: Callable[[], object]
) -> None:
    """Have something happen once, before a file of the next copy is created."""
    storage = open_storage(target)
    create, files = storage.create, iter(range(number))

    def create_later(path: str, data: bytes, **options: bool) -> None:
        if next(files, None) is None:
            monkeypatch.undo()
            meanwhile()
        create(path, data, **options)

    monkeypatch.setattr(storage, "create", create_later)
    monkeypatch.setattr(fill, "open_storage", lambda _: storage)


def test_one_command_at_a_time_fills_a_location(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "fork")
    other = plan_fork(query, target)

    def fork_too() -> None:
        with pytest.raises(CheckpointError, match=r"another .* command is changing"):
            apply_fork(other)

    at_copy(monkeypatch, target, 5, fork_too)
    fork_id = apply_fork(plan_fork(query, target))
    assert inspect(target).id == fork_id
    assert validate(target).findings == ()
    with pytest.raises(ConfigError, match="not empty"):
        apply_fork(other)
    assert inspect(target).next.first == 5


def test_a_fork_that_is_overtaken_leaves_the_copy_alone(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks, with a second attempt that finishes and a query on what it made."""
    target = f"memory://{uuid.uuid4().hex}/fork"
    seen: list[dict[str, object]] = []

    def finish_and_run() -> None:
        apply_fork(plan_fork(query, target))
        open_storage(target).create("offsets/5", b"v1\n{}\n-")
        seen.append(contents_of(target))

    at_copy(monkeypatch, target, 5, finish_and_run)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_fork(plan_fork(query, target))
    assert contents_of(target) == seen[0]
    assert BARRIER not in seen[0]


def test_half_a_copy_of_an_origin_that_moved_is_refused(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is compared, and never removed."""
    target = tmp_path / "fork"

    def die() -> None:
        raise KeyboardInterrupt

    at_copy(monkeypatch, str(target), 9, die)
    with pytest.raises(KeyboardInterrupt):
        apply_fork(plan_fork(query, target))
    (query / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":9}')
    before = files_of(target)
    with pytest.raises(CheckpointError, match=r"commits/0 is of an earlier attempt.*has moved"):
        apply_fork(plan_fork(query, target))
    left = files_of(target)
    assert {path: left[path] for path in before if path != BARRIER} == {
        path: data for path, data in before.items() if path != BARRIER
    }
    assert inspect(target).next.problem is not None


def test_answers_that_are_lost_do_no_harm(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may refuse the repeated request for what the first one has created."""
    url = remote_copy(query)
    storage = open_storage(url)
    create = storage.create

    def create_twice(path: str, data: bytes, **options: bool) -> None:
        create(path, data, **options)
        if not path.startswith("undo"):
            raise AlreadyExistsError("it exists")

    monkeypatch.setattr(storage, "create", create_twice)
    monkeypatch.setattr(apply, "open_storage", lambda _: storage)
    apply_plan(plan_rewind(url, to_batch=1), stopped=True)
    assert inspect(url).next.first == 7


def test_one_command_at_a_time_changes_a_location(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(query)
    undo = apply_plan(plan_rewind(query, to_batch=1), stopped=True)
    other = plan_undo(undo)

    def undo_too() -> None:
        with pytest.raises(CheckpointError, match=r"another .* command is changing"):
            apply_plan(other, stopped=True)

    at_step(monkeypatch, 2, undo_too)
    apply_plan(plan_undo(undo), stopped=True)
    assert files_of(query) == before


def test_an_undo_that_is_overtaken_removes_nothing(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks: the second one finishes, a query runs, and the first one wakes up."""
    url = remote_copy(query)
    undo = apply_plan(plan_rewind(url, to_batch=1), stopped=True)
    other = plan_undo(undo)
    seen: list[dict[str, object]] = []

    def finish_and_run() -> None:
        apply_plan(other, stopped=True)
        for name in ("offsets/5", "offsets/6", "commits/5", "commits/6"):
            open_storage(url).create(name, b"v1\n{}\n-")
        seen.append(contents_of(url))

    at_step(monkeypatch, 0, finish_and_run)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(plan_undo(undo), stopped=True)
    assert contents_of(url) == seen[0]


def at_delete(
    monkeypatch: pytest.MonkeyPatch, url: str, wanted: str, meanwhile: Callable[[], object]
) -> None:
    """Have something happen once, before the next change deletes that file."""
    storage = open_storage(url)
    delete = storage.delete

    def delete_later(path: str) -> None:
        if path == wanted:
            monkeypatch.undo()
            meanwhile()
        delete(path)

    monkeypatch.setattr(storage, "delete", delete_later)
    monkeypatch.setattr(apply, "open_storage", lambda _: storage)


@pytest.mark.parametrize("steps", [0, 1, 3], ids=["begun", "one step", "all but one"])
def test_a_change_that_ends_late_unbars_no_later_one(
    query: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Without locks: an undo begins between a rewind's last check and the end of its barrier."""
    url = remote_copy(query)
    before = contents_of(url)
    plan = plan_rewind(url, to_batch=1)

    def begin_undo() -> None:
        (undo_path,) = open_storage(url).find("undo")
        interrupt(plan_undo(f"{url}/{undo_path}"), monkeypatch, after=steps)

    at_delete(monkeypatch, url, BARRIER, begin_undo)
    undo = apply_plan(plan, stopped=True)  # its last step comes late
    assert Checkpoint.open(url).is_barred
    assert inspect(url).next.problem is not None  # no query starts on half of it
    with pytest.raises(CheckpointError, match="is not finished"):
        plan_rewind(url, to_batch=2)
    apply_plan(plan_undo(undo), stopped=True)
    assert contents_of(url) == before
    apply_plan(plan_rewind(url, to_batch=2), stopped=True)
    assert inspect(url).next.problem is None


def test_of_two_that_take_a_change_over_the_later_one_finishes_it(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = remote_copy(query)
    interrupt(plan_rewind(url, to_batch=1), monkeypatch, after=1)
    begun = plan_rewind(url, to_batch=1)
    seen: list[dict[str, object]] = []

    def overtake() -> None:
        apply_plan(plan_rewind(url, to_batch=1), stopped=True)
        seen.append(contents_of(url))

    at_step(monkeypatch, 0, overtake)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(begun, stopped=True)
    assert contents_of(url) == seen[0]
    assert inspect(url).next.first == 7


@pytest.mark.parametrize("steps", [0, 1, 3], ids=["begun", "one step", "all but one"])
def test_a_command_that_comes_late_leaves_the_next_change_alone(
    query: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Without locks: the change that it completes has ended, and another one was begun."""
    url = remote_copy(query)
    interrupt(plan_rewind(url, to_batch=1), monkeypatch, after=1)
    late = plan_rewind(url, to_batch=1)
    next_barrier = hold.next_barrier

    def begin_another(barriers: list[str]) -> str:
        monkeypatch.setattr(hold, "next_barrier", next_barrier)
        apply_plan(plan_rewind(url, to_batch=1), stopped=True)
        interrupt(plan_rewind(url, to_batch=3), monkeypatch, after=steps)
        return next_barrier(barriers)

    monkeypatch.setattr(hold, "next_barrier", begin_another)
    with pytest.raises(CheckpointError, match="is not finished"):
        apply_plan(late, stopped=True)
    assert sorted(open_storage(url).names("offsets"))[-1] == BARRIER.removeprefix("offsets/")
    apply_plan(plan_rewind(url, to_batch=3), stopped=True)
    assert inspect(url).next.problem is None


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_a_step_that_comes_after_an_undo_is_put_back(
    query: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, is_finished: bool
) -> None:
    """Without locks: the undo begins, or is over, between a rewind's check and its step."""
    url = remote_copy(query)
    before = contents_of(url)
    plan = plan_rewind(url, to_batch=1)
    take_step, steps = apply._take_step, iter(range(number))
    undo: list[Plan] = []

    def take_step_later(*args: Any) -> None:
        if next(steps, None) is None:
            monkeypatch.setattr(apply, "_take_step", take_step)
            (undo_path,) = open_storage(url).find("undo")
            undo.append(plan_undo(f"{url}/{undo_path}"))
            if is_finished:
                apply_plan(undo[0], stopped=True)
            else:
                interrupt(undo[0], monkeypatch, after=3)
        take_step(*args)

    monkeypatch.setattr(apply, "_take_step", take_step_later)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(plan, stopped=True)
    if not is_finished:
        apply_plan(undo[0], stopped=True)
    assert contents_of(url) == before


def test_a_step_that_comes_after_an_undo_is_put_back_beside_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"memory://{uuid.uuid4().hex}/program"
    with CheckpointLocation(url) as driver:
        for batch_id in range(5):
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + batch_id, sources=("{}",)))
            driver.commit(batch_id)
    take_step, steps = apply._take_step, iter(range(2))

    def take_step_later(*args: Any) -> None:
        if next(steps, None) is None:
            monkeypatch.setattr(apply, "_take_step", take_step)
            (undo_path,) = open_storage(url).find("undo")
            apply_plan(plan_undo(f"{url}/{undo_path}"), stopped=True)
            interrupt(plan_rewind(url, to_batch=3), monkeypatch, after=1)
        take_step(*args)

    monkeypatch.setattr(apply, "_take_step", take_step_later)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(plan_rewind(url, to_batch=1), stopped=True)
    apply_plan(plan_rewind(url, to_batch=3), stopped=True)
    assert sorted(open_storage(url).names("commits")) == ["0", "1", "2", "3"]


def test_a_command_that_is_refused_leaves_no_barrier(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = remote_copy(query)
    interrupt(plan_rewind(url, to_batch=1), monkeypatch, after=1)
    storage, again = open_storage(url), plan_rewind(url, to_batch=1)
    storage.create("offsets/6", b"v1\n{}\n-")  # of a query that runs against all evidence
    before = contents_of(url)
    with pytest.raises(CheckpointError, match="holds something else"):
        apply_plan(again, stopped=True)
    assert contents_of(url) == before


def test_an_undo_beside_the_repeated_command(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that began later wins, and the result is whole."""
    url = remote_copy(query)
    interrupt(plan_rewind(url, to_batch=1), monkeypatch, after=2)
    (undo_path,) = open_storage(url).find("undo")
    again, back = plan_rewind(url, to_batch=1), plan_undo(f"{url}/{undo_path}")
    seen: list[dict[str, object]] = []

    def repeat() -> None:
        apply_plan(again, stopped=True)
        seen.append(contents_of(url))

    at_step(monkeypatch, 1, repeat)
    with pytest.raises(CheckpointError, match="taken this change over"):
        apply_plan(back, stopped=True)
    assert inspect(url).next.first == 7
    assert {f"{log}/{n}" for log in ("offsets", "commits") for n in (5, 6)} <= seen[0].keys()


def test_a_file_that_a_query_wrote_is_not_removed(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = apply_plan(plan_rewind(query, to_batch=1), stopped=True)
    rewound = files_of(query)
    at_step(monkeypatch, 3, lambda: (query / "offsets/5").write_bytes(b"v1\n{}\n-"))
    with pytest.raises(CheckpointError, match="wrote the same file"):
        apply_plan(plan_undo(undo), stopped=True)
    assert files_of(query) == {**rewound, "offsets/5": b"v1\n{}\n-"}


def test_a_program_that_ran_a_batch_again_refuses_to_undo(tmp_path: Path) -> None:
    """Its commits are the same bytes as before."""
    place = tmp_path / "own"
    with CheckpointLocation(place) as driver:
        for batch_id in range(5):
            line = f'{{"clicks":{{"r0-1":{batch_id}}}}}'
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + batch_id, sources=(line,)))
            driver.commit(batch_id)
    undo = apply_plan(plan_rewind(place, to_batch=1))
    waiting = plan_undo(undo)
    with CheckpointLocation(place) as driver:
        driver.commit(2)
    before = files_of(place)
    for attempt in (lambda: plan_undo(undo), lambda: apply_plan(waiting)):
        with pytest.raises(CheckpointError, match="a query has run on it: not all files"):
            attempt()
    before["driver.lock"] = (place / "driver.lock").read_bytes()  # it names its last holder
    assert files_of(place) == before


def test_a_lock_that_a_program_left_says_nothing_of_a_query_of_spark(query: Path) -> None:
    (query / "driver.lock").touch()
    with pytest.raises(ConcurrentDriverError, match="a query may still be running"):
        apply_plan(plan_rewind(query, to_batch=1))


def test_what_a_plan_is_to_change_says_that_a_query_runs(query: Path) -> None:
    for path in query.rglob("*"):
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    temporary = query / "offsets/.5.0f6c2b9e-7b0f-4c41-9c7e-2f1b1c2d3e4f.tmp"
    temporary.write_text("v1\n{")
    plan = plan_repair(query)
    assert temporary.name in describe_evidence(plan)
    with pytest.raises(ConcurrentDriverError, match=r"\.tmp is fresh"):
        apply_plan(plan)
    assert undo_files(query) == []

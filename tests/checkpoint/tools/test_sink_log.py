"""The log of Spark's file sink, taken back with its query: by a model of how Spark reads it."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.tools import (
    apply_fork,
    apply_plan,
    inspect,
    plan_fork,
    plan_promote,
    plan_repair,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.barrier import BARRIER, barrier_entry
from penstock.checkpoint.tools.changes import fill, hold
from penstock.checkpoint.tools.changes.sink_log import SinkLog, begin_sink_log
from penstock.checkpoint.tools.changes.state_back import EMPTY_SNAPSHOT
from penstock.checkpoint.tools.named_files import files_outside
from penstock.errors import CheckpointError, ConfigError, StorageError
from penstock.storage import Storage, open_storage
from tests.cli.commands import Commands

from .interruptions import interrupt
from .queries import write_query, write_stateless
from .test_changes import files_of, undo_files
from .test_validate import edit, remove

CHECKPOINT = Commands("checkpoint", columns=200)


FIRST_MS = 1_700_000_000_000
"""When batch 0 was planned, as ``write_stateless`` says; the others follow at each second."""


def sink_line(path: str, written_ms: int) -> str:
    fields = {"path": path, "size": 1, "isDir": False, "modificationTime": written_ms}
    return json.dumps(fields | {"blockReplication": 1, "blockSize": 1, "action": "add"})


class Sink:
    """Spark's file sink, as far as its log: each batch adds one file of its name."""

    def __init__(self, output: Path, interval: int, first_ms: int = FIRST_MS) -> None:
        self._log = output / "_spark_metadata"
        self._log.mkdir(parents=True, exist_ok=True)
        self._setting = interval
        self._first_ms = first_ms

    def newest(self) -> int:
        return max(self._ids(""), default=-1)

    def add(self, batch_id: int) -> None:
        """Take a batch, unless its id was seen."""
        if batch_id <= self.newest():
            return
        interval = self._interval()
        files = [sink_line(f"batch {batch_id}", self._first_ms + 1000 * batch_id)]
        if (batch_id + 1) % interval == 0:
            before = range(max(0, batch_id - interval), batch_id)
            files = [each for n in before for each in self._get(n, interval)] + files
            self._write(f"{batch_id}.compact", files)
        else:
            self._write(str(batch_id), files)

    def files(self) -> list[str]:
        """Return the files of the output."""
        newest, interval = self.newest(), self._interval()
        first = max(0, (newest + 1) // interval * interval - 1)
        lines = (each for n in range(first, newest + 1) for each in self._get(n, interval))
        return [json.loads(line)["path"] for line in lines]

    def retire(self, below: int) -> None:
        for path in self._log.iterdir():
            if int(path.name.removesuffix(".compact")) < below:
                path.unlink()

    def _ids(self, suffix: str) -> list[int]:
        names = [p.name for p in self._log.iterdir() if not p.name.startswith(".")]
        return sorted(int(n.removesuffix(".compact")) for n in names if n.endswith(suffix))

    def _interval(self) -> int:
        compacted = self._ids(".compact")
        if len(compacted) > 1:
            return compacted[-1] - compacted[-2]
        if not compacted:
            return self._setting
        count = compacted[0] + 1
        if self._setting < count / 2:
            fits = (n for n in range(self._setting, count // 2 + 1) if count % n == 0)
            return next(fits, count)
        return count

    def _get(self, batch_id: int, interval: int) -> list[str]:
        suffix = ".compact" if (batch_id + 1) % interval == 0 else ""
        return (self._log / f"{batch_id}{suffix}").read_text().split("\n")[1:]

    def _write(self, name: str, files: list[str]) -> None:
        (self._log / name).write_text("\n".join(["v1", *files]))


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """What a query without state leaves: batches 0 to 4 over files."""
    return write_stateless(tmp_path / "query", batches=5)


def write_sink(query: Path, interval: int = 10, batches: int = 5, first_ms: int = FIRST_MS) -> Path:
    """Write the output of such a query, beside it."""
    output = query.with_name("out")
    for batch_id in range(batches):
        Sink(output, interval, first_ms).add(batch_id)
    return output


def after(output: Path, query: Path, interval: int = 10, batches: int = 25) -> list[str]:
    """Return the files of the output when the query has run so many more batches."""
    first = inspect(query).next.first
    for batch_id in range(first, first + batches):
        Sink(output, interval).add(batch_id)
    return Sink(output, interval).files()


def batches_named(*ids: int) -> list[str]:
    return [f"batch {each}" for each in ids]


@settings(max_examples=60, deadline=None)
@given(
    interval=st.integers(2, 12),
    newest=st.integers(2, 40),
    back=st.integers(0, 39),
    gap=st.integers(2, 30),
    retired=st.integers(0, 30),
)
def test_spark_reads_what_the_batches_up_to_the_point_wrote(
    tmp_path_factory: pytest.TempPathFactory,
    interval: int,
    newest: int,
    back: int,
    gap: int,
    retired: int,
) -> None:
    output = tmp_path_factory.mktemp("sink")
    for batch_id in range(newest + 1):
        Sink(output, interval).add(batch_id)
    kept = (min(retired, newest) + 1) // interval * interval - 1  # a compacted one, as Spark does
    Sink(output, interval).retire(kept)
    to_batch = min(max(back, kept, 0), newest)

    log = SinkLog.open(output)
    compacted = log.first_compacted(log.newest)
    next_id = max(newest + gap, 0 if compacted is None else compacted + 1)
    for change in log.changes(to_batch, next_id):
        assert change.before is None
        assert isinstance(change.after, bytes)
        (output / change.path).write_bytes(change.after)

    assert Sink(output, interval).newest() == next_id - 1
    assert Sink(output, interval).files() == batches_named(*range(to_batch + 1))
    for batch_id in range(next_id, next_id + 25):
        Sink(output, interval).add(batch_id)
    new = range(next_id, next_id + 25)
    assert Sink(output, interval).files() == batches_named(*range(to_batch + 1), *new)


@pytest.mark.parametrize("interval", [2, 4, 10])
def test_the_output_goes_back_with_the_query(query: Path, interval: int) -> None:
    output = write_sink(query, interval)
    before = files_of(query), files_of(output)

    args = ("rewind", str(query), "--to-batch", "1", "--sink", str(output))
    printed = CHECKPOINT.succeed(*args)
    assert f"the output in file://{output} goes back" in printed
    assert (files_of(query), files_of(output)) == before
    CHECKPOINT.succeed(*args, "--apply", "--stopped")

    assert Sink(output, interval).files() == batches_named(0, 1)
    first = inspect(query).next.first
    undo = undo_files(query)[0]
    copy = shutil.copytree(output, output.with_name("copy"))
    assert after(copy, query, interval) == batches_named(0, 1, *range(first, first + 25))

    CHECKPOINT.succeed("undo", str(undo), "--apply", "--stopped")
    assert (files_of(query), files_of(output)) == before


def test_any_step_may_be_the_last(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command dies, it can be completed, and taken back."""
    output = write_sink(query)
    saved = {
        each: shutil.copytree(each, each.with_name(f"{each.name}-saved"))
        for each in (query, output)
    }
    steps = len(plan_rewind(query, to_batch=1, sink=output).changes)
    assert steps > 8
    for after_steps in range(0, steps, 3):
        for way in ("forth", "back"):
            interrupt(plan_rewind(query, to_batch=1, sink=output), monkeypatch, after_steps)
            assert inspect(query).next.problem is not None
            if way == "forth":
                apply_plan(plan_rewind(query, to_batch=1, sink=output), stopped=True)
                assert Sink(output, 10).files() == batches_named(0, 1)
                apply_plan(plan_undo(undo_files(query)[-1]), stopped=True)
            else:
                apply_plan(plan_undo(undo_files(query)[-1]), stopped=True)
            assert files_of(query) == files_of(saved[query])
            assert files_of(output) == files_of(saved[output])
            shutil.rmtree(query / "undo")


def test_a_sink_that_is_ahead_is_passed(query: Path) -> None:
    """The location is that of a backup: batches 5 to 7 would be skipped."""
    output = write_sink(query, batches=8)
    apply_plan(plan_rewind(query, to_batch=4, sink=output), stopped=True)
    first = inspect(query).next.first
    assert first > 8
    assert after(output, query) == batches_named(*range(5), *range(first, first + 25))


def test_offsets_of_no_batch_leave_the_output(query: Path) -> None:
    output = write_sink(query)
    plan = plan_rewind(query, to_offsets={"0": {"logOffset": 1}}, sink=output)
    apply_plan(plan, stopped=True)
    assert Sink(output, 10).files() == batches_named(*range(5))
    assert any("stays as it is" in each for each in plan.meaning)


def test_promote_takes_the_output_too(query: Path) -> None:
    output = write_sink(query)
    apply_plan(plan_promote(query, 2, sink=output), stopped=True)
    assert Sink(output, 10).files() == batches_named(0, 1, 2)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


REFUSED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "no sink": (lambda _, out: shutil.rmtree(out / "_spark_metadata"), "no log of Spark's file"),
    "another query's": (
        lambda _, out: [(out / f"_spark_metadata/{n}").unlink() for n in (3, 4)],
        "not the query's output",
    ),
    "an entry is gone": (lambda _, out: (out / "_spark_metadata/1").unlink(), "_spark_metadata/1"),
    "torn": (lambda _, out: (out / "_spark_metadata/1").write_bytes(b""), "it is empty"),
    "a torn line": (lambda _, out: tear(out / "_spark_metadata/1"), "not JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_log_does_not_tell_is_refused(query: Path, case: str) -> None:
    output = write_sink(query)
    damage, message = REFUSED[case]
    damage(query, output)
    with pytest.raises((CheckpointError, ConfigError), match=message):
        plan_rewind(query, to_batch=2, sink=output)


@pytest.mark.parametrize("batches", [5, 8])
def test_the_output_of_another_query_is_left_alone(query: Path, batches: int) -> None:
    """Its log is as long as the query's, or longer, and its batches ran at another time."""
    output = write_sink(query, batches=batches, first_ms=FIRST_MS + 60_000)
    before = files_of(output)
    args = ("--sink", str(output))
    for command in (("rewind", str(query), "--to-batch", "2"), ("promote", str(query), "2")):
        failed = CHECKPOINT.run(*command, *args, "--apply", "--stopped")
        assert failed.exit_code != 0
        assert "not the query's output" in str(failed.exception)
    assert "not the query's output" in CHECKPOINT.run("validate", str(query), *args).output
    assert files_of(output) == before


def test_a_log_far_ahead_is_refused(query: Path) -> None:
    output = write_sink(query)
    (output / "_spark_metadata/2000000000").write_bytes(b"v1")
    with pytest.raises(CheckpointError, match="more than 10000"):
        plan_rewind(query, to_batch=2, sink=output)


@pytest.mark.parametrize("newest", [10**18 + 2, 2**31 - 2])
def test_a_huge_id_keeps_no_one_waiting(query: Path, newest: int) -> None:
    output = write_sink(query)
    (output / f"_spark_metadata/{newest}.compact").write_bytes(b"v1")
    assert CHECKPOINT.run("validate", str(query), "--sink", str(output)).exit_code == 2
    with pytest.raises(CheckpointError):
        plan_rewind(query, to_batch=2, sink=output)


def test_an_undo_file_changes_nothing_else_outside(query: Path) -> None:
    """It is a file in the location; whoever can write there must not reach other folders."""
    output = write_sink(query)
    apply_plan(plan_rewind(query, to_batch=2, sink=output), stopped=True)
    (undo,) = undo_files(query)
    fields = json.loads(undo.read_text())
    for change in fields["changes"]:
        if "root" in change:
            change["path"] = "../victim"
    undo.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match="not an undo file"):
        plan_undo(undo)


PLANTED: dict[str, Callable[[Path, Path], dict[str, object]]] = {
    "through a linked folder": lambda query, victim: {
        "path": link(query / "sources/link", victim) + "/keys"
    },
    "a linked file": lambda query, victim: {"path": link(query / "sources/file", victim / "keys")},
    "another folder of Spark's": lambda _, victim: {
        "path": "_spark_metadata/5",
        "root": str(victim / "new"),
    },
    "a folder of the user's": lambda _, __: {"path": "journal/keys"},
    "a copy of a linked file": lambda query, victim: {
        "path": "state/0/0/9.delta",
        "after": {"copyOf": link(query / "sources/s", victim / "secret")},
    },
    "a copy of a file outside": lambda _, victim: {
        "path": "state/0/0/9.delta",
        "after": {"copyOf": f"../{victim.name}/secret"},
    },
}


def link(path: Path, target: Path) -> str:
    path.symlink_to(target)
    return f"sources/{path.name}"


@pytest.mark.parametrize("way", ["rewind", "undo"])
@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_change_reaches_nothing_outside(query: Path, case: str, way: str) -> None:
    """Whoever can write to a location can put a barrier and an undo file there."""
    victim = query.with_name("victim")
    victim.mkdir()
    (victim / "secret").write_bytes(b"secret")
    change = {"before": None, "after": {"text": "planted"}, "why": "an entry"}
    change |= PLANTED[case](query, victim)
    if way == "undo":
        change |= {"before": change["after"], "after": None}
    fields = {"version": 1, "command": "rewind --to-batch 1", "newest": [4, 4], "meaning": []}
    undo = query / "undo/1-rewind.json"
    undo.parent.mkdir()
    undo.write_text(json.dumps(fields | {"changes": [change]}))
    (query / BARRIER).write_bytes(barrier_entry("token", undo="undo/1-rewind.json"))
    before = files_of(query), files_of(victim), sorted(query.parent.iterdir())

    with pytest.raises((CheckpointError, ConfigError)):
        apply_plan(
            plan_rewind(query, to_batch=1) if way == "rewind" else plan_undo(undo), stopped=True
        )
    assert (files_of(query), files_of(victim), sorted(query.parent.iterdir())) == before


def compacted(output: Path) -> list[int]:
    names = (path.name for path in (output / "_spark_metadata").glob("[0-9]*.compact"))
    return sorted(int(name.removesuffix(".compact")) for name in names)


@pytest.mark.parametrize("batches", [1, 9, 12])
def test_a_fork_begins_in_a_new_folder(tmp_path: Path, batches: int) -> None:
    query = write_stateless(tmp_path / "query", batches)
    output, fork = tmp_path / "new", tmp_path / "fork"
    plan = plan_fork(query, fork, sink=output)
    apply_fork(plan)
    assert Sink(output, 10).files() == []
    assert validate(fork, sink=output).findings == ()
    first = inspect(fork).next.first
    assert first == max(10, batches)
    assert after(output, fork) == batches_named(*range(first, first + 25))


@pytest.mark.parametrize("interval", [2, 7, 10, 30])
@pytest.mark.parametrize("newest", [9, 10, 18, 19, 20, 28, 29, 33])
def test_a_new_log_is_compacted_no_more_often_than_is_set(
    tmp_path: Path, newest: int, interval: int
) -> None:
    """Spark takes the interval from the entries that it finds."""
    (tmp_path / "_spark_metadata").mkdir()
    for change in begin_sink_log(tmp_path, newest):
        assert isinstance(change.after, bytes)
        (tmp_path / change.path).write_bytes(change.after)
    assert Sink(tmp_path, interval).files() == []

    for batch_id in range(newest + 1, newest + 60):
        Sink(tmp_path, interval).add(batch_id)
    assert Sink(tmp_path, interval).files() == batches_named(*range(newest + 1, newest + 60))
    steps = [after - before for before, after in pairwise(compacted(tmp_path))]
    assert min(steps) >= min(interval, 10)
    assert max(steps) <= max(20, 2 * interval)


def test_two_forks_do_not_share_a_sink(query: Path, tmp_path: Path) -> None:
    apply_fork(plan_fork(query, tmp_path / "fork", sink=tmp_path / "new"))
    with pytest.raises(ConfigError, match="another query writes there"):
        plan_fork(query, tmp_path / "other", sink=tmp_path / "new")


def test_state_is_copied_under_the_version_with_which_the_fork_begins(tmp_path: Path) -> None:
    query = write_query(tmp_path / "query", batches=3)
    for delta in query.glob("state/0/?/*.delta"):
        edit(delta, lambda _, path=delta: f"{path.parent.name}/{path.name}")  # type: ignore[misc]
    apply_fork(plan_fork(query, tmp_path / "fork", sink=tmp_path / "new"))

    copy = inspect(tmp_path / "fork")
    assert (copy.next.first, copy.next.problem) == (10, None)
    assert copy.batches[-1].offsets == {"0": {"logOffset": 2}}
    assert copy.batches[-1].next_watermark_ms == 3
    assert validate(tmp_path / "fork").findings == ()
    state = tmp_path / "fork/state/0/1"
    assert (state / "7.snapshot").read_bytes() == EMPTY_SNAPSHOT
    assert [(state / f"{n}.delta").read_text() for n in (8, 9, 10)] == [
        f"1/{n}.delta" for n in (1, 2, 3)
    ]


def test_a_fork_whose_state_cannot_be_copied_so_waits_for_a_later_batch(tmp_path: Path) -> None:
    for batches in (9, 10):
        query = write_query(tmp_path / f"query{batches}", batches)
        for delta in query.glob("state/0/?/*.delta"):
            delta.rename(delta.with_suffix(".changelog"))
        sink = tmp_path / f"new{batches}"
        if batches == 9:
            with pytest.raises(CheckpointError, match=r"is RocksDB.*fork it when batch 9 is done"):
                plan_fork(query, tmp_path / "fork", sink=sink)
        else:
            assert plan_fork(query, tmp_path / "fork", sink=sink).appended == ()


@pytest.mark.parametrize("stop", ["the copy", "the sink", "the end"])
def test_a_fork_that_was_cut_off_ends_where_it_began(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Meanwhile the first query has run batches 5 and 6."""
    fork, output = tmp_path / "fork", tmp_path / "new"
    plan = plan_fork(query, fork, sink=output)
    steps = {"the copy": 9, "the sink": 9 + len(plan.files), "the end": 10**6}[stop]
    with monkeypatch.context() as patch:
        if stop == "the end":
            patch.setattr(hold.Hold, "release", fail)
        taken, count = fill._put_file, iter(range(steps))
        patch.setattr(
            fill,
            "_put_file",
            lambda *args: taken(*args) if next(count, None) is not None else fail(),
        )
        with pytest.raises(StorageError, match="the disk is full"):
            apply_fork(plan)
    write_stateless(query, batches=7)

    again = plan_fork(query, fork, sink=output)
    assert again.batch_id == 4
    apply_fork(again)

    assert validate(fork, sink=output).findings == ()
    assert inspect(fork).next.first == 10
    assert inspect(fork).batches[-1].offsets == {"0": {"logOffset": 4}}
    assert compacted(output) == [9]


def test_a_fork_whose_batch_is_retired_is_not_completed(query: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold.Hold, "release", fail)
        with pytest.raises(StorageError, match="the disk is full"):
            apply_fork(plan_fork(query, tmp_path / "fork"))
    write_stateless(query, batches=7)
    for batch_id in range(5):
        remove(query / f"offsets/{batch_id}")
        remove(query / f"commits/{batch_id}")
    with pytest.raises(CheckpointError, match="begun at batch 4, which is retired since"):
        plan_fork(query, tmp_path / "fork")


def fail(*_: object) -> None:
    raise StorageError("the disk is full")


def torn_newest(query: Path) -> None:
    (query / "offsets/4").write_bytes(b"v1\n{")


def test_a_repair_gives_new_ids_to_what_the_sink_has_seen(query: Path) -> None:
    """Batch 4 is in the output, and its entry torn: planned anew under its id, it is skipped."""
    output = write_sink(query)
    torn_newest(query)
    remove(query / "commits/4")
    assert "a sink that skips" in CHECKPOINT.run("repair", str(query)).output

    plan = plan_repair(query, sink=output)
    apply_plan(plan, stopped=True)
    assert Sink(output, 10).files() == batches_named(*range(4))
    first = inspect(query).next.first
    assert first > 5
    assert after(output, query) == batches_named(*range(4), *range(first, first + 25))


def test_a_repair_leaves_what_the_sink_has_not_seen(query: Path) -> None:
    output = write_sink(query, batches=4)
    torn_newest(query)
    remove(query / "commits/4")
    apply_plan(plan_repair(query, sink=output), stopped=True)
    assert inspect(query).next.first == 4


def test_the_extent_is_not_for_programs_of_penstock(own: Path, query: Path) -> None:
    output = write_sink(query)
    with pytest.raises(ConfigError, match="penstock program"):
        plan_rewind(own, to_batch=0, sink=output)


UNFIT: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "ahead": (lambda _, out: Sink(out, 10).add(5), "skips the batches up to there"),
    "behind": (lambda _, out: (out / "_spark_metadata/4").unlink(), "BATCH_METADATA_NOT_FOUND"),
    "a gap": (lambda _, out: (out / "_spark_metadata/2").unlink(), "lacks _spark_metadata/2"),
    "torn": (lambda _, out: (out / "_spark_metadata/2").write_bytes(b"x"), "_spark_metadata/2"),
    "a torn line": (lambda _, out: tear(out / "_spark_metadata/4"), "_spark_metadata/4"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_validate_tells_whether_the_log_fits(query: Path, case: str) -> None:
    output = write_sink(query)
    args = ("validate", str(query), "--sink", str(output))
    assert "sound" in CHECKPOINT.succeed(*args)
    remove(query / "commits/4")  # the sink may have the batch that is not committed
    assert "sound" in CHECKPOINT.succeed(*args)
    remove(query / "offsets/4")
    write_stateless(query, batches=5)

    damage, message = UNFIT[case]
    damage(query, output)
    done = CHECKPOINT.run(*args)
    assert done.exit_code == 2
    assert message in done.output


def test_a_rewind_without_its_sink_is_seen(query: Path) -> None:
    output = write_sink(query)
    apply_plan(plan_rewind(query, to_batch=2), stopped=True)
    assert CHECKPOINT.run("validate", str(query), "--sink", str(output)).exit_code == 2


def write_files(output: Path, url: str | None = None) -> None:
    """Create the files of the output, and name them as Spark does: by URI."""
    base = output.as_uri() if url is None else url
    for entry in (output / "_spark_metadata").iterdir():
        edit(entry, lambda text: text.replace('"batch ', f'"{base}/batch%20'))
    for batch_id in range(5):
        (output / f"batch {batch_id}").touch()


def move(output: Path) -> Path:
    return output.rename(output.with_name("moved"))


def copy(output: Path) -> Path:
    return Path(shutil.copytree(output, output.with_name("copy")))


def hide(output: Path) -> Path:
    """Have a file only under the name that its URI spells."""
    (output / "batch 2").rename(output / "batch%202")
    return output


def by_link(path: Path) -> Path:
    path.with_name("link").symlink_to(path)
    return path.with_name("link")


OUTPUTS: dict[str, tuple[Callable[[Path], Path], int]] = {
    "whole": (lambda output: output, 0),
    "by a link": (by_link, 0),
    "moved": (move, 2),
    "a copy": (copy, 2),
    "one is gone": (hide, 1),
}
"""How the output is found, and what `validate` ends with."""


@pytest.mark.parametrize("case", OUTPUTS)
def test_the_files_that_the_log_names_are_looked_for(query: Path, case: str) -> None:
    output = write_sink(query)
    write_files(output)
    change, status = OUTPUTS[case]
    output = change(output)
    done = CHECKPOINT.run("validate", str(query), "--sink", str(output))
    assert done.exit_code == status, done.output
    if status == 2:
        assert "5 of 5 files that its log names are not in this folder" in done.output
        with pytest.raises(ConfigError, match="the output was moved, or this is a copy"):
            plan_rewind(query, to_batch=2, sink=output)
        with pytest.raises(ConfigError, match="the output was moved, or this is a copy"):
            plan_promote(query, 2, sink=output)
        assert undo_files(query) == []
        return
    sentences = " ".join(plan_rewind(query, to_batch=3, sink=output).meaning)
    assert ("the output stays without what is gone from it: 1 of 4 files" in sentences) == bool(
        status
    )
    assert "gone" not in " ".join(plan_rewind(query, to_batch=1, sink=output).meaning)


def put_output(query: Path, url: str) -> Storage:
    """Put an output of batches 0 to 4 on a store."""
    output = write_sink(query)
    write_files(output, url)
    store = open_storage(url)
    for path in output.rglob("*"):
        if path.is_file():
            store.create(str(path.relative_to(output)), path.read_bytes() or b"-")
    return store


@pytest.mark.parametrize("to", ["memory://{}/other", "file://{}/other"])
def test_an_output_that_was_moved_from_a_store_is_refused(
    query: Path, tmp_path: Path, to: str
) -> None:
    bucket = uuid.uuid4().hex
    store = put_output(query, f"memory://{bucket}/out")
    moved = to.format(bucket if to.startswith("memory") else tmp_path)
    there = open_storage(moved)
    for path in store.find():
        there.create(path, store.read(path))
    done = CHECKPOINT.run("validate", str(query), "--sink", moved)
    assert done.exit_code == 2, done.output
    assert "5 of 5 files that its log names are not in this folder" in done.output
    with pytest.raises(ConfigError, match="the output was moved"):
        plan_rewind(query, to_batch=2, sink=moved)


SPELLINGS = [
    ("abfss://lake@account.dfs.core.windows.net/out", "abfs://lake/out"),
    ("hdfs://namenode:8020/out", "webhdfs://namenode:9870/out"),
    ("hdfs:///out", "webhdfs://namenode:9870/out"),
    ("s3a://lake/out", "s3://lake/out"),
]


@pytest.mark.parametrize(("of_hadoop", "of_fsspec"), SPELLINGS)
def test_a_store_is_known_by_what_both_call_it(of_hadoop: str, of_fsspec: str) -> None:
    class Store:
        url = of_fsspec

        def find(self) -> list[str]:
            return ["a b"]

    uris = [f"{of_hadoop}/{name}" for name in ("a%20b", "c")]
    assert files_outside(cast(Storage, Store()), uris) == [f"{of_hadoop}/c"]
    assert files_outside(cast(Storage, Store()), ["dbfs:/out/a", "file:/out/a"]) == ["file:/out/a"]


def test_the_files_of_an_output_on_an_object_store_are_looked_for(query: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}/out"
    store = put_output(query, url)
    assert "sound" in CHECKPOINT.succeed("validate", str(query), "--sink", url)
    store.delete("batch 3")
    assert "1 of 5 files" in CHECKPOINT.run("validate", str(query), "--sink", url).output
    for batch_id in range(5):
        store.delete(f"batch {batch_id}")
    with pytest.raises(ConfigError, match="the output was moved"):
        plan_rewind(query, to_batch=2, sink=url)

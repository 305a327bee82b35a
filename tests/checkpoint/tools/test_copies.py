"""``fork``: a second query continues from a copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.tools import (
    apply_fork,
    diff_locations,
    inspect,
    plan_fork,
    plan_rewind,
    validate,
)
from penstock.checkpoint.tools.changes import fork
from penstock.errors import CheckpointError, ConfigError, StorageError
from penstock.storage import open_storage

from .queries import write_query
from .test_changes import CHECKPOINT, files_of
from .test_validate import edit, remove

if TYPE_CHECKING:
    from pyspark import SparkContext


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return write_query(tmp_path / "query", batches=5)


def test_a_fork_ends_with_what_is_done(query: Path, tmp_path: Path) -> None:
    remove(query / "commits/4")
    (query / "offsets/.5.0b1e.tmp").touch()
    before, target = files_of(query), tmp_path / "fork"

    printed = CHECKPOINT.succeed("fork", str(query), str(target))
    assert "a query on it runs batch 4 next" in printed
    assert not target.exists()
    done = json.loads(CHECKPOINT.succeed("fork", str(query), str(target), "--apply", "--json"))

    assert files_of(query) == before
    assert validate(target).findings == ()
    assert inspect(target).next.first == 4
    assert inspect(target).id == done["id"] != inspect(query).id
    assert not (target / "state/0/0/5.delta").exists()  # what batch 4 began
    assert diff_locations(query, target).differing == ()


def test_the_plan_of_a_copy_that_reads_a_journal_names_the_consumer(
    query: Path, tmp_path: Path
) -> None:
    assert "consumer" not in " ".join(plan_fork(query, tmp_path / "fork").meaning)
    edit(
        query / "offsets/4",
        lambda text: text.replace('{"logOffset":4}', '{"clicks":{"r0-00000000":120}}'),
    )
    meaning = " ".join(plan_fork(query, tmp_path / "fork").meaning)
    assert "source 0 reads a journal: give the second query another consumer" in meaning


def test_a_location_in_use_is_not_filled(query: Path, tmp_path: Path) -> None:
    write_query(tmp_path / "other", batches=1)
    with pytest.raises(ConfigError, match="not empty"):
        plan_fork(query, tmp_path / "other")
    plan = plan_fork(query, tmp_path / "new")
    write_query(tmp_path / "new", batches=1)
    before = files_of(tmp_path / "new")
    with pytest.raises(ConfigError, match="not empty"):
        apply_fork(plan)
    assert files_of(tmp_path / "new") == before

    (tmp_path / "home/docs").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not empty"):
        plan_fork(query, tmp_path / "home")


def test_no_query_starts_on_half_a_fork(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "fork"
    storage = open_storage(target)
    create, count = storage.create, iter(range(7))

    def fail_later(path: str, data: bytes) -> None:
        if next(count, None) is None:
            raise StorageError("the disk is full")
        create(path, data)

    monkeypatch.setattr(storage, "create", fail_later)
    with monkeypatch.context() as patch:
        patch.setattr(fork, "open_storage", lambda _: storage)
        with pytest.raises(StorageError, match="full"):
            apply_fork(plan_fork(query, target))
    assert "is not finished" in (inspect(target).next.problem or "")
    with pytest.raises(CheckpointError, match="delete the folder"):
        plan_rewind(target, to_batch=0)
    with pytest.raises(ConfigError, match=r"not empty.*delete one that a fork began"):
        plan_fork(query, target)

    shutil.rmtree(target)
    apply_fork(plan_fork(query, target))
    assert validate(target).findings == ()
    assert inspect(target).next.first == 5


def test_what_cannot_be_forked(own: Path, query: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="in its journal"):
        plan_fork(own, tmp_path / "fork")
    shutil.rmtree(query / "commits")
    with pytest.raises(CheckpointError, match="no batch is done"):
        plan_fork(query, tmp_path / "fork")


def test_links_are_not_followed(query: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (query / "sources/0/9").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="sources/0/9 is a symbolic link"):
        plan_fork(query, tmp_path / "fork")
    (query / "sources/0/9").unlink()
    (tmp_path / "outside").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/offsets").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="not empty"):
        plan_fork(query, tmp_path / "new")


def test_a_location_is_not_copied_into_itself(query: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(query)
    for target in (query / "state/copy", tmp_path / "link/undo", query):
        with pytest.raises(ConfigError, match="is in the one that is copied"):
            plan_fork(query, target)
    assert plan_fork(query, tmp_path / "query2").files


def test_a_fork_fails_when_a_file_that_it_needs_is_retired(query: Path, tmp_path: Path) -> None:
    """And not for older ones."""
    (query / "state/0/0/4.snapshot").write_bytes(b"state")
    (query / "state/0/1/4.snapshot").write_bytes(b"state")
    plan = plan_fork(query, tmp_path / "fork")
    for path in ("offsets/0", "commits/0", "state/0/0/1.delta", "state/0/1/3.delta"):
        remove(query / path)
    apply_fork(plan)
    assert validate(tmp_path / "fork").severity in (None, "note")
    assert inspect(tmp_path / "fork").next.first == 5

    for number, path in enumerate(("offsets/4", "sources/0/3.compact", "state/0/0/5.delta")):
        target = tmp_path / f"other{number}"
        kept = write_query(tmp_path / f"query{number}", batches=5)
        plan = plan_fork(kept, target)
        remove(kept / path)
        with pytest.raises(CheckpointError, match=r"\.crc is gone.*fork again"):
            apply_fork(plan)
        assert inspect(target).next.problem is not None


@pytest.mark.spark
def test_a_second_query_of_spark_continues_from_a_fork(
    sc: SparkContext, counted: Path, location: Path, tmp_path: Path
) -> None:
    """With its state: both leave the same batches, from the same new input."""
    from pyspark.sql import SparkSession

    from .conftest import count, write_inputs

    inputs = counted.parent / "in"
    shutil.copytree(inputs, tmp_path / "more")
    apply_fork(plan_fork(location, tmp_path / "fork"))
    write_inputs(inputs_of := tmp_path / "late", count=1)
    late = tmp_path / "more/late.json"
    shutil.copy(inputs_of / "0.json", late)

    for place in (location, tmp_path / "fork"):
        count(SparkSession(sc), tmp_path / "more", place)

    assert inspect(location).next == inspect(tmp_path / "fork").next
    left, right = (
        [(b.batch_id, b.offsets, b.watermark_ms) for b in inspect(place).batches]
        for place in (location, tmp_path / "fork")
    )
    assert left == right
    assert left[-1][0] > 5
    assert [f for f in validate(tmp_path / "fork").findings if f.severity == "error"] == []

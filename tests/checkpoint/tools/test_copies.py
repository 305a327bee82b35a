"""``fork``, ``export`` and ``import``."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.tools import (
    Checkpoint,
    apply_fork,
    diff_locations,
    export_location,
    inspect,
    plan_fork,
    plan_import,
    plan_rewind,
    validate,
)
from penstock.checkpoint.tools.changes import fill
from penstock.errors import CheckpointError, ConfigError, StorageError
from penstock.storage import open_storage

from .queries import write_query
from .test_changes import CHECKPOINT, files_of
from .test_validate import remove

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
    CHECKPOINT.succeed("fork", str(query), str(target), "--apply")

    assert files_of(query) == before
    assert validate(target).findings == ()
    assert inspect(target).next.first == 4
    assert inspect(target).id != inspect(query).id
    assert not (target / "state/0/0/5.delta").exists()  # what batch 4 began
    assert diff_locations(query, target).differing == ()


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


def test_no_query_starts_on_half_a_fork(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command begins it again."""
    target = tmp_path / "fork"
    storage = open_storage(target)
    create, count = storage.create, iter(range(7))

    def fail_later(path: str, data: bytes) -> None:
        if next(count, None) is None:
            raise StorageError("the disk is full")
        create(path, data)

    monkeypatch.setattr(storage, "create", fail_later)
    with monkeypatch.context() as patch:
        patch.setattr(fill, "open_storage", lambda _: storage)
        with pytest.raises(StorageError, match="full"):
            apply_fork(plan_fork(query, target))
    assert "is not finished" in (inspect(target).next.problem or "")
    with pytest.raises(CheckpointError, match="delete the folder"):
        plan_rewind(target, to_batch=0)
    with pytest.raises(ConfigError, match="not empty"):  # of another location
        plan_fork(write_query(tmp_path / "other", batches=1), target)

    apply_fork(plan_fork(query, target))
    assert validate(target).findings == ()
    assert inspect(target).next.first == 5


def test_what_cannot_be_forked(own: Path, query: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="in its journal"):
        plan_fork(own, tmp_path / "fork")
    shutil.rmtree(query / "commits")
    with pytest.raises(CheckpointError, match="no batch is done"):
        plan_fork(query, tmp_path / "fork")


@pytest.mark.parametrize("is_remote", [False, True])
def test_an_export_is_imported_byte_for_byte(
    query: Path, tmp_path: Path, *, is_remote: bool
) -> None:
    (query / "state/0/0/1.delta").write_bytes(bytes(range(256)))  # no UTF-8
    (query / "state/0/0/.1.delta.crc").unlink()
    target = f"memory://{uuid.uuid4().hex}/new" if is_remote else str(tmp_path / "new")
    file = str(tmp_path / "query.json")

    CHECKPOINT.succeed("export", str(query), file)
    CHECKPOINT.succeed("import", file, target)
    CHECKPOINT.succeed("import", file, target, "--apply")

    old, new = Checkpoint.open(query), Checkpoint.open(target)
    assert new.read(new.files) == old.read(old.files)
    assert validate(target).findings == ()


def test_what_is_no_export_is_refused(tmp_path: Path, query: Path) -> None:
    for text in ("", "[]", '{"version":2}', '{"version":1,"location":"a","files":{"b":3}}'):
        with pytest.raises(ConfigError, match="no exported checkpoint location"):
            plan_import(text.encode(), tmp_path / "new")
    outside = json.dumps({"version": 1, "location": "a", "files": {"../b": {"text": ""}}})
    with pytest.raises(ConfigError, match="clean relative path"):
        plan_import(outside.encode(), tmp_path / "new")
    with pytest.raises(ConfigError, match="not empty"):
        plan_import(export_location(query), query)


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

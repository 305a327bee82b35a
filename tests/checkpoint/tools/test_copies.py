"""``fork``, ``export`` and ``import``."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import (
    Checkpoint,
    apply_fork,
    apply_import,
    diff_locations,
    export_location,
    inspect,
    plan_fork,
    plan_import,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.changes import fill
from penstock.checkpoint.tools.changes.hold import Hold
from penstock.checkpoint.used_sinks import note_sink_of
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
    CHECKPOINT.succeed("fork", str(query), str(target), "--apply")

    assert files_of(query) == before
    assert validate(target).findings == ()
    assert inspect(target).next.first == 4
    assert inspect(target).id != inspect(query).id
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


def test_each_file_of_a_copy_is_a_step(query: Path, tmp_path: Path) -> None:
    plan, steps = plan_fork(query, tmp_path / "fork"), []
    apply_fork(plan, on_file=steps.append)
    assert len(steps) >= len(plan.files)


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


def test_a_program_that_was_moved_keeps_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a rewind would be applied, after which its sink refuses each start."""
    place, new = tmp_path / "program", tmp_path / "new"
    with CheckpointLocation(place) as driver:
        for batch_id in range(3):
            line = f'{{"clicks":{{"0":{batch_id}}}}}'
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + batch_id, sources=(line,)))
            driver.commit(batch_id)
    note_sink_of(open_storage(place), "lake")
    plan = plan_import(export_location(place), new)
    with monkeypatch.context() as patch:
        patch.setattr(Hold, "release", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):  # all is there but the end
            apply_import(plan)
    apply_import(plan_import(export_location(place), new))
    assert validate(new).findings == ()
    with pytest.raises(CheckpointError, match="lake writes each batch exactly once"):
        plan_rewind(new, to_batch=1)


def test_what_is_no_export_is_refused(tmp_path: Path, query: Path) -> None:
    for text in ("", "[]", '{"version":2}', '{"version":1,"location":"a","files":{"b":3}}'):
        with pytest.raises(ConfigError, match="not an exported checkpoint location"):
            plan_import(text.encode(), tmp_path / "new")
    outside = json.dumps({"version": 1, "location": "a", "files": {"../b": {"text": ""}}})
    with pytest.raises(ConfigError, match="clean relative path"):
        plan_import(outside.encode(), tmp_path / "new")
    with pytest.raises(ConfigError, match="not empty"):
        plan_import(export_location(query), query)


def exported(**files: str) -> bytes:
    """Return an exported location with files, by path with "__" for "/"."""
    named = {path.replace("__", "/"): {"text": text} for path, text in files.items()}
    return json.dumps({"version": 1, "location": "file:///a", "files": named}).encode()


NOT_IMPORTED = [
    "checkpoint-1700000000000",  # a graph checkpoint
    "journal/clicks/stream.json",
    "undo/a.json",
    "driver.lock",
    "state/counts/0/1.delta",  # Spark's operators have numbers
    "offsets/9223372036854775807",  # the barrier
    "offsets/.0.0123456789abcdef.tmp",
    "offsets",
]


@pytest.mark.parametrize("path", NOT_IMPORTED)
def test_what_export_does_not_write_is_not_imported(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(path)}' is not imported"):
        plan_import(exported(metadata="{}", **{path: ""}), tmp_path / "new")


def test_hostile_text_is_refused_without_a_traceback(query: Path, tmp_path: Path) -> None:
    deep = b"[" * 200_000
    surrogate = b'{"version":1,"location":"a","files":{"offsets/\\ud800":{"text":""}}}'
    for text in (deep, surrogate):
        with pytest.raises(ConfigError):
            plan_import(text, tmp_path / "new")
    for path in ("sources/" + "a/" * 3000 + "b", "sources/0/" + "a" * 250):
        done = tmp_path / "deep.json"
        done.write_bytes(exported(**{path: ""}))
        failed = CHECKPOINT.fail("import", str(done), str(tmp_path / "new"), "--apply")
        assert "is not imported" in str(failed)
        assert len(str(failed)) < 500
        assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="sources/0' is not imported"):
        plan_import(exported(sources__0="", sources__0__1=""), tmp_path / "new")

    head = b'{"version":1,"command":"a","meaning":[],'
    change = b'"newest":[1,1],"changes":[{"path":"%s","before":null,"after":null,"why":""}]}'
    paths = (b"offsets/9223372036854775807", b"a/../../b", b"offsets/\\ud800")
    infinite = head + b'"newest":[Infinity,1],"changes":[]}'
    (query / "undo").mkdir()
    for text in (deep, infinite, *(head + change % path for path in paths)):
        (query / "undo/a.json").write_bytes(text)
        with pytest.raises(ConfigError):
            plan_undo(query / "undo/a.json")


def test_links_are_not_followed(query: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (query / "sources/0/9").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="sources/0/9 is a symbolic link"):
        export_location(query)
    with pytest.raises(CheckpointError, match="sources/0/9 is a symbolic link"):
        plan_fork(query, tmp_path / "fork")

    (tmp_path / "outside").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/offsets").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="not empty"):
        plan_import(exported(offsets__0=""), tmp_path / "new")


def test_a_folder_with_other_folders_is_not_empty(query: Path, tmp_path: Path) -> None:
    (tmp_path / "home/docs").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not empty"):
        plan_fork(query, tmp_path / "home")


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

"""A rewind takes the state back by copies of its files, or is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    apply_plan,
    inspect,
    plan_promote,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.changes.state_back import EMPTY_SNAPSHOT
from penstock.errors import CheckpointError, ConfigError

from .queries import PARTITIONS, write_query
from .test_changes import files_of
from .test_validate import edit, remove


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """Batches 0 to 7 of an aggregation, whose state has a delta for each version."""
    (tmp_path / "in").mkdir()
    for batch_id in range(8):
        (tmp_path / f"in/{batch_id}.json").touch()
    place = write_query(tmp_path / "query", batches=8, inputs=f"file://{tmp_path}/in")
    for delta in place.glob("state/0/?/*.delta"):
        edit(delta, lambda _, path=delta: f"{path.parent.name}/{path.name}")  # type: ignore[misc]
    return place


def chain(place: Path, partition: int, above: int) -> dict[str, bytes]:
    """Return the new state files of a partition."""
    files = (place / f"state/0/{partition}").glob("[0-9]*")
    return {f.name: f.read_bytes() for f in files if int(f.name.partition(".")[0]) > above}


def test_an_old_version_is_laid_above_all_others(query: Path) -> None:
    """Of partition 0 there is a snapshot of version 2, of partition 1 none."""
    shutil.copy(query / "state/0/0/2.delta", query / "state/0/0/2.snapshot")
    before = files_of(query)

    undo = apply_plan(plan_rewind(query, to_batch=3))

    following = inspect(query).next
    assert (following.first, following.rerun) == (13, ())
    assert chain(query, 0, above=8) == {
        "11.snapshot": b"0/2.delta",
        "12.delta": b"0/3.delta",
        "13.delta": b"0/4.delta",
    }
    assert chain(query, 1, above=8) == {
        "9.snapshot": EMPTY_SNAPSHOT,
        **{f"{version + 9}.delta": b"1/%d.delta" % version for version in range(1, 5)},
    }
    (newest,) = inspect(query, last=1).batches
    assert newest.batch_id == 12
    assert (newest.offsets, newest.watermark_ms) == ({"0": {"logOffset": 3}}, 3)
    assert newest.next_watermark_ms == 4
    assert [f.path for f in validate(query).findings] == ["offsets/8"]  # its watermark runs back

    apply_plan(plan_undo(undo))
    assert files_of(query) == before


def test_promote_takes_the_state_back_too(query: Path) -> None:
    apply_plan(plan_promote(query, 0))
    assert inspect(query).next.first == 10
    assert set(chain(query, 1, above=8)) == {"9.snapshot", "10.delta"}


def test_the_same_offsets_with_other_state_are_another_point(query: Path) -> None:
    edit(query / "offsets/6", lambda text: text.replace('Offset":6', 'Offset":7'))
    assert plan_rewind(query, to_batch=6).changes
    assert plan_rewind(query, to_batch=7).changes == ()


@pytest.mark.parametrize("appended", [8, 11])
def test_any_batch_that_a_rewind_appended_stands_for_all_of_them(
    query: Path, appended: int
) -> None:
    """Version 10 of partition 1 is a part of the copy, and no state of a batch."""
    apply_plan(plan_rewind(query, to_batch=3))
    assert inspect(query).next.first == 13
    run(query, 13, log_offset=7)

    apply_plan(plan_rewind(query, to_batch=appended))

    assert loaded(query, 1, inspect(query).next.first) == [b"1/%d.delta" % v for v in (1, 2, 3, 4)]
    (newest,) = inspect(query, last=1).batches
    assert newest.offsets == {"0": {"logOffset": 3}}


def test_a_batch_that_a_rewind_appended_is_promoted_with_its_state(query: Path) -> None:
    apply_plan(plan_rewind(query, to_batch=3))
    run(query, 13, log_offset=7)
    apply_plan(plan_promote(query, 9))
    assert loaded(query, 1, inspect(query).next.first) == [b"1/%d.delta" % v for v in (1, 2, 3, 4)]


def test_what_a_rewind_appended_is_no_point_where_its_last_batch_is_lost(query: Path) -> None:
    apply_plan(plan_rewind(query, to_batch=3))
    for batch_id in (13, 14):
        run(query, batch_id, log_offset=7)
    remove(query / "commits/12")
    with pytest.raises(ConfigError, match="batch 12 is not among the batches that are done"):
        plan_rewind(query, to_batch=9)
    remove(query / "offsets/12")
    with pytest.raises(CheckpointError, match="offsets/12 cannot be read"):
        plan_rewind(query, to_batch=9)


@pytest.mark.parametrize("retired", [0, 8])
def test_shifts_lead_back_along_the_way_that_the_query_took(query: Path, retired: int) -> None:
    """Batches 4 to 7, of which it was taken back, are none of its points, kept or retired."""
    apply_plan(plan_rewind(query, to_batch=3))
    run(query, 13, log_offset=5)
    run(query, 14, log_offset=7)
    for batch_id in range(retired):
        remove(query / f"offsets/{batch_id}")
        remove(query / f"commits/{batch_id}")

    apply_plan(plan_rewind(query, shift_by=2))

    assert loaded(query, 1, inspect(query).next.first) == [b"1/%d.delta" % v for v in (1, 2, 3, 4)]
    (newest,) = inspect(query, last=1).batches
    assert newest.offsets == {"0": {"logOffset": 3}}


def run(query: Path, batch_id: int, log_offset: int) -> None:
    """Write what a batch leaves that ends at this entry of the source's log."""
    for log in ("offsets", "commits"):
        text = (query / f"{log}/{batch_id - 1}").read_text()
        text = re.sub('Offset":[0-9]+', f'Offset":{log_offset}', text)
        text = re.sub('TimestampMs":[0-9]+', f'TimestampMs":{1_800_000_000_000 + batch_id}', text)
        (query / f"{log}/{batch_id}").write_text(text)
    for partition in range(PARTITIONS):
        path = query / f"state/0/{partition}/{batch_id + 1}.delta"
        path.write_text(f"{partition}/{path.name}")


def loaded(query: Path, partition: int, version: int) -> list[bytes]:
    """Return the changes from which the store makes a version."""
    folder = query / f"state/0/{partition}"
    snapshots = (int(path.stem) for path in folder.glob("*.snapshot"))
    first = max((each for each in snapshots if each <= version), default=0)
    return [(folder / f"{each}.delta").read_bytes() for each in range(first + 1, version + 1)]


def of_rocks_db(query: Path) -> None:
    for delta in query.glob("state/0/?/*.delta"):
        delta.rename(delta.with_suffix(".changelog"))


def of_zstd(query: Path) -> None:
    codec = '"spark.sql.streaming.stateStore.compression.codec":"zstd"'
    edit(query / "offsets/7", lambda text: text.replace('"conf":{', f'"conf":{{{codec},'))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "RocksDB": (of_rocks_db, "is RocksDB, not HDFS-backed"),
    "a codec without an empty snapshot": (of_zstd, "compressed with zstd"),
    "a version that is gone": (lambda q: remove(q / "state/0/1/2.delta"), "state/0/1/2.delta"),
    "a partition that is gone": (lambda q: shutil.rmtree(q / "state/0/1"), "has no files"),
    "an empty file": (lambda q: (q / "state/0/0/1.delta").write_bytes(b""), "it is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_state_that_cannot_go_back_refuses_a_rewind(query: Path, case: str) -> None:
    damage, message = REFUSED[case]
    damage(query)
    with pytest.raises(CheckpointError, match=f"has state .stateStoreSave. .*{message}"):
        plan_rewind(query, to_batch=3)


def test_state_is_kept_for_ends_of_batches_only(query: Path) -> None:
    assert PARTITIONS == 2
    with pytest.raises(CheckpointError, match="ends of batches only"):
        plan_rewind(query, to_offsets={"0": {"logOffset": 3}})

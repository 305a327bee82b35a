"""The page about a query."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.batch_records import decode_records
from penstock.checkpoint.query_runs import QueryRuns
from penstock.status import health, read_location
from tests.ui.served import program_page


def a_query(root: Path) -> None:
    """Write the checkpoint of three batches, of which nothing is penstock's."""
    for name in ("offsets", "commits"):
        (root / name).mkdir()
    (root / "metadata").write_text('{"id":"q"}')
    for batch_id in range(3):
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
        offset = json.dumps({"clicks": {"0": 10 * (batch_id + 1), "1": 5}})
        text = f"v1\n{json.dumps(metadata)}\n{offset}\n7"
        (root / "offsets" / str(batch_id)).write_text(text)
        (root / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        for folder, at_s in (("offsets", 1_700_000_000), ("commits", 1_700_000_002)):
            os.utime(root / folder / str(batch_id), (at_s, at_s))


def test_a_query_of_spark_alone(tmp_path: Path) -> None:
    """Nothing of it is penstock's: its logs tell what they tell."""
    a_query(tmp_path)
    status = read_location(str(tmp_path))
    assert status.kind == "query"
    assert [each.records for each in status.batches] == [15, 10, 10]
    assert [each.name for each in status.inputs] == ["0", "1"]  # topics: by the place
    assert health(status).level == "ok"
    page = program_page(status)
    assert "Records per batch" in page
    assert "<figcaption><span>Scheduling delay" not in page  # nothing tells
    for unknown in ("Batch interval", "Total delay", "ailed", "an again"):
        assert unknown not in page
    assert "back pressure is off" in page
    batch = program_page(status, 1)
    assert "Spark&#39;s own UI has them" in batch
    assert "2 s, from its plan to its commit" in batch
    assert "<dt>Commit</dt>" not in batch


NOTED = {
    "triggerMs": 1000,
    "beganMs": 1,
    "driver": {},
    "reruns": [],
    "failed": None,
    "ended": False,
}
DAMAGED: dict[str, Any] = {
    "no JSON": "{", "no object": "7", "nested": "[" * 100_000,
    **{f"{key} {value}": json.dumps({**NOTED, key: value}).replace('"e"', "1e999")
       for key in NOTED for value in ("x", "e", -(10**30), [[1]], {"1": "<b>"}, [1, 2, 3])},
    "driver": json.dumps({**NOTED, "driver": {"spark.penstock.driver": "[" * 100_000}}),
    "interval": json.dumps({**NOTED, "triggerMs": 10**310}),
    "pid": json.dumps({**NOTED, "driver": {"spark.penstock.driver": json.dumps(
        {"host": socket.gethostname(), "pid": 10**30, "ui": "javascript:alert()"})}}),
}  # fmt: skip


@pytest.mark.parametrize("noted", DAMAGED.values(), ids=DAMAGED)
def test_what_a_damaged_note_of_its_runs_tells_hides_nothing(tmp_path: Path, noted: str) -> None:
    a_query(tmp_path)
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "runs.json").write_text(noted)
    status = read_location(str(tmp_path))
    assert [each.state for each in status.batches] == ["committed"] * 3
    assert health(status).level != "error"
    page = program_page(status, 1)
    assert "/0?batch=0#batch" in page
    assert "javascript:" not in page


def test_a_note_of_its_runs_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    a_query(tmp_path)
    (tmp_path / "penstock").mkdir()
    note = tmp_path / "penstock" / "runs.json"
    note.symlink_to(note)
    status = read_location(str(tmp_path))
    assert [each.state for each in status.batches] == ["committed"] * 3
    assert [each for each in status.problems if "runs.json" in each]


def test_a_batch_that_runs_again_and_again_leaves_the_others_known() -> None:
    runs = QueryRuns().begun(0, None, 3)
    for _ in range(200):
        runs = runs.begun(0, None, 4)
    assert runs.reruns == (3, 4)


def test_records_with_numbers_that_are_none_are_left_out() -> None:
    assert decode_records('[{"batch": 1e999, "due": 0, "records": {}, "jobs": []}]') == []

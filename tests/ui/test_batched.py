"""The pages about a checkpoint path of batches, and about a query."""

from __future__ import annotations

import json
import os
from pathlib import Path

from penstock.status import health, read_location
from penstock.status.checks import read_checks
from penstock.ui.pages.batches import batch_page, batches_page
from penstock.ui.pages.checkpoint import checkpoint_page
from penstock.ui.pages.overview import overview
from penstock.ui.pages.rates import rates_page


def test_a_query_of_spark_alone(tmp_path: Path) -> None:
    """Nothing of it is penstock's: its logs tell what they tell."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    for batch_id in range(3):
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
        offset = json.dumps({"clicks": {"0": 10 * (batch_id + 1), "1": 5}})
        text = f"v1\n{json.dumps(metadata)}\n{offset}\n7"
        (tmp_path / "offsets" / str(batch_id)).write_text(text)
        (tmp_path / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        for folder, at_s in (("offsets", 1_700_000_000), ("commits", 1_700_000_002)):
            os.utime(tmp_path / folder / str(batch_id), (at_s, at_s))
    status = read_location(str(tmp_path))
    assert status.kind == "query"
    assert [each.records for each in status.batches] == [15, 10, 10]
    assert [each.name for each in status.inputs] == ["clicks", "1"]
    assert health(status).level == "ok"
    page = batches_page(0, status, 50)
    assert "Records per batch" in page
    assert "<figcaption><span>Scheduling delay" not in page  # nothing tells
    for unknown in ("Batch interval", "Total delay", "ailed", "an again", "Plan", "Commit"):
        assert unknown not in page
    batch = batch_page(0, status, 1)
    assert batch is not None
    assert "Spark's own UI has them" in batch
    assert "2 s, from its plan to its commit" in batch
    assert "Durations" not in batch
    assert "back pressure is off" in rates_page(0, status, may_change=False)
    checks = read_checks(str(tmp_path), status.kind, validated=True)
    assert "Validation" in checkpoint_page(0, status, checks, validated=True)


def test_a_program_of_batches(tmp_path: Path) -> None:
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "4.ckpt").write_text("x")
    (tmp_path / "dirty_bit").touch()
    status = read_location(str(tmp_path))
    assert status.kind == "batched"
    assert "clicks" in [each.name for each in status.inputs]
    checks = read_checks(str(tmp_path), status.kind, validated=True)
    page = checkpoint_page(0, status, checks, validated=True)
    assert "Validation" in page
    assert "Programs and queries" in overview([status])

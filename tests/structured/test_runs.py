"""What a session notes of a query's runs, told of them in any order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.checkpoint.query_runs import read_query_runs
from penstock.storage import open_storage
from penstock.structured import runs
from penstock.structured.running_query import RunningQuery


def _event(run: str, error: str | None = None) -> Any:
    return SimpleNamespace(id="query", runId=run, exception=error)


def test_an_end_that_is_told_late_is_not_the_next_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark tells of ends in a thread of its own: the query may run again already."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    (tmp_path / "offsets" / "0").write_text(f"v1\n{metadata}\n7")
    query = RunningQuery(str(tmp_path), 2000, ())
    monkeypatch.setattr(runs, "running_query", lambda *_: query)
    session = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None))
    listener = runs.RunListener(cast("Any", session))
    storage = open_storage(tmp_path)
    listener.onQueryStarted(_event("first"))
    listener.onQueryStarted(_event("second"))
    listener.onQueryTerminated(_event("first", "the disk is full"))
    assert read_query_runs(storage).failed is None
    listener.onQueryTerminated(_event("second", "the disk is full\n\tat a place"))
    assert read_query_runs(storage).failed == (0, "the disk is full")

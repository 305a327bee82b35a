"""Programs and queries that are stopped, failed, paused and caught up, beside each other."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import cast

from penstock.checkpoint.batch_records import driver_conf
from penstock.checkpoint.query_runs import QueryRuns, note_failure, write_query_runs
from penstock.journal import JournalStream, RecordFormat
from penstock.status import LocationStatus, SharedStatus, health, read_location
from penstock.storage import open_storage
from tests.journal.helpers import write_blocks
from tests.ui.served import journal_page, overview, program_page
from tests.ui.world import Batches, consumer, now_ms, program

HOUR_MS = 3_600_000


def a_query(root: Path, runs: QueryRuns, batches: int = 2, committed: int = 2) -> None:
    """Write a query over the stream ``clicks``: ten records a batch, the last an hour ago."""
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True)
    for batch_id in range(batches):
        begun_ms = now_ms() - HOUR_MS + 1000 * batch_id
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": begun_ms, "conf": {}}
        offset = json.dumps({"clicks": {"r0-00000000": 10 * (batch_id + 1)}})
        written = {"offsets": f"v1\n{json.dumps(metadata)}\n{offset}"}
        if batch_id < committed:
            written["commits"] = 'v1\n{"nextBatchWatermarkMs":0}'
        for folder, text in written.items():
            file = root / folder / str(batch_id)
            file.write_text(text)
            at_s = begun_ms / 1000 + (0.4 if folder == "commits" else 0)
            os.utime(file, (at_s, at_s))
    write_query_runs(open_storage(root), runs)


def begun(name: str | None = None, *, has_ended: bool = False) -> QueryRuns:
    driver = driver_conf(None, name)
    return QueryRuns(1000, now_ms() - HOUR_MS, driver, has_ended=has_ended)


def shown(shared: SharedStatus) -> list[LocationStatus]:
    found = list(map(shared.get, range(len(shared.paths))))
    assert all(isinstance(each, LocationStatus) for each in found)
    return cast("list[LocationStatus]", found)


def test_a_failed_query_and_a_failed_program_are_red_though_their_processes_ended(
    tmp_path: Path,
) -> None:
    a_query(tmp_path / "in-a-batch", begun().ended_in(1, "no column"), committed=1)
    a_query(tmp_path / "before-one", begun().ended_in(None, "no such topic"))
    program(tmp_path / "program", Batches(4, failed=frozenset({3})), is_alive=False)
    newest = (tmp_path / "program" / "offsets" / "3").read_text().splitlines()[1]
    note_failure(open_storage(tmp_path / "program"), json.loads(newest)["conf"], 3, "no page")
    levels = {}
    for name in ("in-a-batch", "before-one", "program"):
        status = read_location(str(tmp_path / name))
        levels[name] = (health(status).level, health(status).reasons[0].text)
    assert levels == {
        "in-a-batch": ("error", "batch 1 failed: no column"),
        "before-one": ("error", "it failed: no such topic"),
        "program": ("error", "batch 3 failed: no page"),
    }


def test_the_failure_of_an_earlier_run_of_a_program_is_over(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(4))  # a later run has planned the newest batch
    note_failure(open_storage(tmp_path / "p"), driver_conf("http://other"), None, "no page")
    status = read_location(str(tmp_path / "p"))
    assert (status.failure, health(status).level) == (None, "ok")


def test_a_query_that_was_stopped_is_not_red_anywhere(tmp_path: Path) -> None:
    """What it committed last reaches the journal with its next batch, which never comes."""
    journal, location = tmp_path / "journal", tmp_path / "counts"
    stream = JournalStream.create(open_storage(journal), "clicks", RecordFormat("string"))
    write_blocks(stream, [["x"] * 10] * 2, close=False)
    consumer(stream, "counts", 10, location=f"file://{location}", idle_ms=2 * HOUR_MS)
    writer = next((journal / "clicks").glob("r0-*"))
    for block in writer.glob("*.parquet"):
        os.utime(block, (time.time() - 7200, time.time() - 7200))
    a_query(location, begun(has_ended=True))
    shared = SharedStatus([str(location), str(journal)])
    found = shown(shared)
    assert [health(each).level for each in found] == ["stopped", "ok"]
    page = overview(*found)
    assert "Everything keeps up" in page
    assert "1, 1 stopped" in page
    assert "dead" not in page.replace("Dead letters", "")
    assert "dead" not in journal_page(found[1]).replace("Dead letters", "")
    # Alone, the journal shows what it keeps for a consumer that commits nothing.
    assert health(read_location(str(journal))).level == "error"


def test_a_page_shows_what_the_overview_does(tmp_path: Path) -> None:
    journal, location = tmp_path / "journal", tmp_path / "counts"
    stream = JournalStream.create(open_storage(journal), "clicks", RecordFormat("string"))
    write_blocks(stream, [["x"] * 10] * 5, close=False)
    consumer(stream, "counts", 10, location=f"file://{location}")
    a_query(location, begun())
    shared = SharedStatus([str(location), str(journal)])
    for status in (shown(shared)[0], shared.get(0)):
        assert isinstance(status, LocationStatus)
        assert status.inputs[0].lag_records == 30
    assert "<dt>Waiting, records</dt><dd>30</dd>" in program_page(status)


def test_the_title_is_the_name_of_the_query_or_program(tmp_path: Path) -> None:
    a_query(tmp_path / "a", begun("totals by page"))
    a_query(tmp_path / "b", begun())
    found = shown(SharedStatus([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert [each.name for each in found] == ["totals by page", "b"]
    page = program_page(found[0])
    assert "<h1>totals by page</h1>" in page
    assert str(tmp_path / "a") in page
    assert "/ </nav>" not in page  # no crumb that ends in nothing


def test_a_batch_that_ran_again_took_no_downtime(tmp_path: Path) -> None:
    runs = QueryRuns(1000, now_ms() - 5000, driver_conf(None), reruns=(1,))
    a_query(tmp_path / "a", runs)
    now_s = now_ms() / 1000
    os.utime(tmp_path / "a" / "commits" / "1", (now_s, now_s))
    first, again = read_location(str(tmp_path / "a")).batches
    assert 395 < (first.processing_ms or 0) < 405  # by the times of files
    assert again.is_rerun
    assert 4000 < (again.processing_ms or 0) < 8000  # it was planned an hour ago
    # Of a run before the newest nothing tells when it began.
    later = QueryRuns(1000, now_ms() + 60_000, driver_conf(None), reruns=(1,))
    write_query_runs(open_storage(tmp_path / "a"), later)
    assert read_location(str(tmp_path / "a")).batches[1].processing_ms is None

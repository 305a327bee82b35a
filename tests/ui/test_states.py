"""Programs and queries that are stopped, failed, paused and caught up, beside each other."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.checkpoint.batch_records import driver_conf
from penstock.checkpoint.query_runs import QueryRuns, note_failure, write_query_runs
from penstock.journal import JournalStream, RecordFormat
from penstock.status import LocationStatus, SharedStatus, health, read_location
from penstock.storage import open_storage
from penstock.ui import words
from penstock.ui.pages.batches import batches_page
from penstock.ui.pages.journal import journal_page
from penstock.ui.pages.overview import overview
from penstock.ui.pages.rates import rates_page
from tests.journal.helpers import write_blocks
from tests.ui.world import Batches, consumer, ended_pid, now_ms, program

HOUR_MS = 3_600_000


def driver(pid: int, name: str | None = None) -> dict[str, str]:
    (key,) = driver_conf(None)
    values = {"host": socket.gethostname(), "pid": pid, "ui": None}
    return {key: json.dumps(values | ({"name": name} if name else {}))}


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


def begun(pid: int, name: str | None = None) -> QueryRuns:
    return QueryRuns(trigger_ms=1000, began_ms=now_ms() - HOUR_MS, driver=driver(pid, name))


def shown(shared: SharedStatus) -> list[LocationStatus]:
    found = list(map(shared.get, range(len(shared.paths))))
    assert all(isinstance(each, LocationStatus) for each in found)
    return cast("list[LocationStatus]", found)


def test_a_failed_query_and_a_failed_program_are_red_though_their_processes_ended(
    tmp_path: Path,
) -> None:
    gone = ended_pid()
    a_query(tmp_path / "in-a-batch", begun(gone).ended_in(1, "no column"), committed=1)
    a_query(tmp_path / "before-one", begun(gone).ended_in(None, "no such topic"))
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
    note_failure(open_storage(tmp_path / "p"), driver(ended_pid()), None, "no page")
    status = read_location(str(tmp_path / "p"))
    assert (status.failure, health(status).level) == (None, "ok")


def test_a_query_that_was_stopped_is_not_red_anywhere(tmp_path: Path) -> None:
    """What it committed last reaches the journal with its next batch, which never comes."""
    journal, location = tmp_path / "journal", tmp_path / "counts"
    gone = ended_pid()
    stream = JournalStream.create(open_storage(journal), "clicks", RecordFormat("string"))
    write_blocks(stream, [["x"] * 10] * 2, close=False)
    consumer(stream, "counts", 10, location=f"file://{location}", pid=gone)
    a_query(location, begun(gone))
    shared = SharedStatus([str(location), str(journal)])
    found = shown(shared)
    assert [health(each).level for each in found] == ["stopped", "ok"]
    page = overview(found)
    assert "Everything keeps up" in page
    assert "1, 1 stopped" in page
    assert "dead" not in page.replace("Dead letters", "")
    assert "dead" not in journal_page(1, found[1], {}).replace("Dead letters", "")
    # Alone, the journal shows what it keeps for a process that ended.
    assert health(read_location(str(journal))).level == "error"


def test_a_page_shows_what_the_overview_does(tmp_path: Path) -> None:
    journal, location = tmp_path / "journal", tmp_path / "counts"
    stream = JournalStream.create(open_storage(journal), "clicks", RecordFormat("string"))
    write_blocks(stream, [["x"] * 10] * 5, close=False)
    consumer(stream, "counts", 10, location=f"file://{location}")
    a_query(location, begun(os.getpid()))
    shared = SharedStatus([str(location), str(journal)])
    for status in (shown(shared)[0], shared.get(0)):
        assert isinstance(status, LocationStatus)
        assert status.inputs[0].lag_records == 30
    assert "<dt>Waiting, records</dt><dd>30</dd>" in rates_page(0, shared.get(0), may_change=False)  # type: ignore[arg-type]


def test_the_title_is_the_name_of_the_query_or_program(tmp_path: Path) -> None:
    a_query(tmp_path / "a", begun(os.getpid(), "totals by page"))
    a_query(tmp_path / "b", begun(os.getpid()))
    found = shown(SharedStatus([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert [each.name for each in found] == ["totals by page", "b"]
    page = batches_page(0, found[0], 50)
    assert "<h1>totals by page</h1>" in page
    assert str(tmp_path / "a") in page
    assert "/ </nav>" not in page  # no crumb that ends in nothing


def test_a_batch_that_ran_again_took_no_downtime(tmp_path: Path) -> None:
    runs = QueryRuns(1000, now_ms() - 5000, driver(os.getpid()), reruns=(1,))
    a_query(tmp_path / "a", runs)
    now_s = now_ms() / 1000
    os.utime(tmp_path / "a" / "commits" / "1", (now_s, now_s))
    first, again = read_location(str(tmp_path / "a")).batches
    assert 395 < (first.processing_ms or 0) < 405  # by the times of files
    assert again.is_rerun
    assert 4000 < (again.processing_ms or 0) < 8000  # it was planned an hour ago
    # Of a run before the newest nothing tells when it began.
    later = QueryRuns(1000, now_ms() + 60_000, driver(os.getpid()), reruns=(1,))
    write_query_runs(open_storage(tmp_path / "a"), later)
    assert read_location(str(tmp_path / "a")).batches[1].processing_ms is None


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (
            "late: latestRate = 812.5, error = 3.1, latestError = 2.0, historicalError = 40.25, "
            "delaySinceUpdate = 1.0, dError = 0.1, processingRate = 700.123",
            "late: the batch processed 700 records/s, and 812 were allowed; it began late, which "
            "is worth 40.2",
        ),
        (
            "target: 194.2 ms + 39.987 us a record, noise 12%, target 90% of the interval",
            "target: a batch costs 194 ms and 40 µs a record, give or take 12%, and may take 90% "
            "of the interval",
        ),
        ("no estimate: no batch yet", "no estimate: no batch yet"),
        ("mine: at 17.123456 records", "mine: at 17.12 records"),
        ("latestRate = 1.2.3, historicalError = x, processingRate = nan", None),
    ],
)
def test_a_reason_is_in_words(why: str, text: str | None) -> None:
    assert words.reason(why) == (why if text is None else text)


def test_reasons_of_the_estimators_are_in_words(tmp_path: Path) -> None:
    from penstock.rate import FitRateEstimator, PIDRateEstimator

    for estimator in (FitRateEstimator(1000), PIDRateEstimator(1000)):
        for number, (records, late_ms) in enumerate([(500, 0), (600, 0), (900, 700)], 1):
            estimator.compute(1000 * number, records, 300 + records, late_ms)
        said: Any = words.reason(estimator.explain())
        assert "=" not in said
        assert " us a record" not in said

"""Back pressure of a query: from its progress to the limit of its next batch, across restarts."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.rate import RateOverride, RateOverrides
from penstock.storage import open_storage
from penstock.structured.admission import Admission
from penstock.structured.query_rates import Progress, QueryRates, SourceProgress, first_limit
from penstock.structured.rate_files import Allowed, RateFiles, SourceRates, settings_of_options
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks
from tests.structured.queries import Query
from tests.waiting import eventually

OPTIONS = {"backpressure.enabled": "true", "backpressure.initialRate": "50"}
IDLE_PROGRESS = "spark.sql.streaming.noDataProgressEventInterval"
"""How often Spark shows the progress of an idle query: each 10 s, unless it is told otherwise."""


def source(records: int, limit: float = 50) -> SourceProgress:
    return SourceProgress("clicks", OPTIONS, records, limit)


def rates(tmp_path: Path, retained: int = 3) -> QueryRates:
    return QueryRates(open_storage(tmp_path), 1000, retained)


def learn(query: QueryRates, number: int, records: int, took_ms: int) -> Allowed:
    batch = Progress(number, 1_000_000 + 1000 * number, took_ms)
    allowed = query.on_batch(batch, source(records), settings_of_options(OPTIONS), 1000)
    query.ended(batch)
    return allowed


def test_the_limit_follows_the_batches_and_outlives_the_run(tmp_path: Path) -> None:
    query = rates(tmp_path)
    learn(query, 0, 50, 100)
    learned = learn(query, 1, 1000, 500).limit
    assert 1500 < learned < 2500
    again = rates(tmp_path)
    first = first_limit(open_storage(tmp_path), {"clicks": {"r0-00000000": 9}}, 1000)
    assert first is not None
    assert first.limit == learned
    assert learn(again, 2, 1000, 500).rate == learned


def test_overrides_apply_at_once_also_while_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    files = RateFiles(str(tmp_path))
    reader = SourceRates(files, "clicks", OPTIONS, str(folder))
    allowed = learn(rates(folder), 0, 50, 100)
    files.allow(reader.reader, {"clicks": {}}, allowed)
    assert reader.next_batch({"clicks": {}}) == allowed
    overrides = RateOverrides(open_storage(folder))
    overrides.set("clicks", RateOverride(max_rate=20))
    assert reader.next_batch({"clicks": {}}).limit == pytest.approx(20)
    overrides.set("clicks", RateOverride(paused=True))
    assert reader.next_batch({"clicks": {}}).limit == 0
    assert reader.report()["reason"] == "paused"
    overrides.set("clicks", RateOverride())
    assert reader.next_batch({"clicks": {}}) == allowed


def test_overrides_apply_to_a_reader_that_the_driver_has_told_nothing(tmp_path: Path) -> None:
    """The newest batch's limit may not be there yet when the query starts again."""
    overrides = RateOverrides(open_storage(tmp_path))
    reader = SourceRates(RateFiles(str(tmp_path / "private")), "clicks", OPTIONS, str(tmp_path))
    assert reader.next_batch({"clicks": {}}).limit == 50
    overrides.set("clicks", RateOverride(paused=True))
    assert reader.next_batch({"clicks": {}}).limit == 0


def test_a_batch_that_ends_in_a_pause_leaves_no_pause_behind(tmp_path: Path) -> None:
    RateOverrides(open_storage(tmp_path)).set("clicks", RateOverride(paused=True))
    allowed = learn(rates(tmp_path), 0, 50, 100)
    assert allowed.limit > 0
    assert allowed.why != "paused"
    assert allowed.under(RateOverride(paused=True)).why == "paused"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "first batch: "),  # fit, which docs/back-pressure.md advises
        ({"backpressure.rateestimator": "fit"}, "first batch: "),
        ({"backpressure.rateestimator": "pid"}, "no estimate: the first batch gives the rate"),
    ],
)
def test_the_estimator_is_the_one_of_the_options_in_lower_case(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    options = {**OPTIONS, **given}
    source = SourceProgress("clicks", options, 50, 50)
    batch = Progress(0, 1_000_000, 100)
    allowed = rates(tmp_path).on_batch(batch, source, settings_of_options(options), 1000)
    assert allowed.why.startswith(why)


@pytest.mark.parametrize("fixed_ms", [900, 1500, 3000])
@pytest.mark.parametrize("first_ms", [3000, 20_000])
@pytest.mark.parametrize("seed", range(2))
def test_a_query_on_a_busy_machine_catches_up(
    tmp_path: Path, fixed_ms: int, first_ms: int, seed: int
) -> None:
    """Batches that take longer than the interval whatever their size, and 100 records a second.

    The limit of one interval, at the minimum of 100 records a second, would let ever more wait.
    """
    moments, options = random.Random(seed), {"backpressure.enabled": "true"}
    query, limit = rates(tmp_path), 1000.0
    now_ms, waiting = 0, 200.0
    behind_s: list[float] = []
    for number in range(100):
        records = min(int(limit), int(waiting))
        took_ms = int((fixed_ms + 0.05 * records) * moments.lognormvariate(0, 0.5))
        took_ms = took_ms if number else first_ms
        batch = Progress(number, now_ms, took_ms)
        source = SourceProgress("clicks", options, records, limit)
        limit = query.on_batch(batch, source, settings_of_options(options), 1000).limit
        query.ended(batch)
        next_ms = max(now_ms + took_ms, now_ms // 1000 * 1000 + 1000)
        waiting += (next_ms - now_ms) / 10 - records
        behind_s.append(waiting / 100)
        now_ms = next_ms
    # What comes during a batch waits, and the longest batches take four times as long as most do.
    assert max(behind_s[60:]) < 8 * fixed_ms / 1000


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "1e999"])
def test_a_damaged_rate_leaves_the_initial_rate(tmp_path: Path, rate: str) -> None:
    learn(rates(tmp_path), 0, 50, 100)
    file = tmp_path / "penstock" / "rates.json"
    file.write_text(re.sub(r'"rate":[0-9.]+', f'"rate":{rate}', file.read_text()))
    assert first_limit(open_storage(tmp_path), {"clicks": {}}, 1000) is None
    assert learn(rates(tmp_path), 1, 50, 100).limit > 0


def test_a_reader_says_again_what_it_is_when_the_folder_was_cleaned(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    files = RateFiles(str(folder))
    reader = SourceRates(files, "clicks", OPTIONS)
    files.allow(reader.reader, {"clicks": {}}, Allowed(90, 90, "target"))
    assert reader.next_batch({"clicks": {}}).limit == 90
    shutil.rmtree(folder)
    assert reader.next_batch({"clicks": {}}).limit == 90
    assert files.source(reader.reader) == ("clicks", OPTIONS)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_query_that_ends_by_itself_does_not_end_while_it_is_paused() -> None:
    admission = Admission()
    start, available = {"a": 1}, {"a": 5}
    assert admission.end_of_batch(start, available, 0, lambda name: (name, 0)) == start
    admission.end_at(available)
    with pytest.raises(ConfigError, match="penstock rate resume"):
        admission.end_of_batch(start, available, 0, lambda name: (name, 0))
    assert admission.end_of_batch(available, available, 0, lambda name: (name, 0)) == available


def test_a_reader_waits_for_the_limit_that_follows_its_last_batch(tmp_path: Path) -> None:
    files = RateFiles(str(tmp_path))
    reader = SourceRates(files, "clicks", OPTIONS)
    start: dict[str, Any] = {"clicks": {"a": 1, "b": 2}}
    assert reader.next_batch(start).limit == 50
    files.allow_first(start, Allowed(70, 70, "after the restart"))
    assert reader.next_batch({"clicks": {"b": 2, "a": 1}}).limit == 70
    reader.planned()
    files.allow(reader.reader, {"clicks": {"a": 5}}, Allowed(90, 90, "target"))
    assert reader.next_batch({"clicks": {"a": 5}}).limit == 90
    assert reader.next_batch({"clicks": {"a": 6}}).limit == 90  # none came: the last one holds
    assert files.source(reader.reader) == ("clicks", OPTIONS)
    files.forget(reader.reader)
    assert files.source(reader.reader) is None


def test_the_first_limit_after_a_restart_is_for_the_interval_of_the_options(
    tmp_path: Path,
) -> None:
    files = RateFiles(str(tmp_path))
    reader = SourceRates(files, "clicks", {**OPTIONS, "backpressure.batchInterval": "5s"})
    assert reader.next_batch({}).limit == 250
    files.allow_first({}, Allowed(70, 70, "after the restart"))
    assert reader.next_batch({}).limit == 350


@pytest.mark.spark
def test_a_querys_rate_follows_its_batches_and_survives_a_restart(
    query: Query, tmp_path: Path
) -> None:
    lines = [str(number) for number in range(400)]
    write_blocks(query.stream, [lines], close=False)
    query.options |= OPTIONS
    batches = query.drain()
    assert len(batches[0]) == 50
    assert sorted(line for batch in batches for line in batch) == sorted(lines)
    report = query.progress[0]["sources"][0]["latestOffset"]["(penstock)"]
    assert report["limit"] == 50
    assert report["reason"] == "initial rate"

    def kept() -> Any:  # the listener hears of batches a little later
        text = (tmp_path / "checkpoint" / "penstock" / "rates.json").read_text()
        return json.loads(text)["clicks"]["batches"]

    assert eventually(lambda: kept()[-1]["batch_id"] == query.ids[-1])
    rate = kept()[-1]["decision"]["rate"]
    shown = Commands("rate").succeed("--checkpoint", str(tmp_path / "checkpoint"), "--json")
    assert json.loads(shown)["streams"][0]["batches"][0]["decision"]["num_elements"] == 50
    write_blocks(query.stream, [[str(number) for number in range(5000)]], receiver="r1")
    assert len(query.drain()[0]) == int(rate)


@pytest.mark.spark
def test_a_stream_of_any_name_has_a_rate(spark: SparkSession, tmp_path: Path) -> None:
    stream = JournalStream.create(open_storage(tmp_path / "j"), "penstock", RecordFormat("string"))
    write_blocks(stream, [[str(number) for number in range(200)]], close=False)
    query = Query(spark, stream, tmp_path / "checkpoint", dict(OPTIONS))
    query.drain()
    latest = query.progress[0]["sources"][0]["latestOffset"]
    assert latest["penstock"] == {"r0-00000000": 200}
    assert latest["(penstock)"]["reason"] == "initial rate"


@pytest.mark.spark
def test_a_query_without_back_pressure_has_no_rates_in_its_checkpoint(query: Query) -> None:
    write_blocks(query.stream, [["a"]])
    query.drain()
    assert (query.location / "commits" / "0").exists()
    assert not (query.location / "penstock" / "rates.json").exists()


@pytest.mark.spark
def test_once_takes_all_there_is_with_back_pressure_too(query: Query) -> None:
    write_blocks(query.stream, [[str(number) for number in range(200)]])
    query.options |= OPTIONS
    assert [len(batch) for batch in query.drain(once=True)] == [200]


@pytest.mark.spark
def test_a_running_query_is_paused_and_resumed_by_penstock_rate(query: Query) -> None:
    checkpoint = ("--checkpoint", str(query.location))
    rate = Commands("rate")
    query.options |= OPTIONS

    def pause_in_the_first(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            rate.succeed("pause", *checkpoint)

    query.on_batch = pause_in_the_first
    write_blocks(query.stream, [["a"]])
    query.spark.conf.set(IDLE_PROGRESS, 100)
    running = query.start("100 milliseconds")
    try:
        assert eventually(lambda: (query.location / "penstock" / "rates.json").exists())
        write_blocks(query.stream, [["b"]], receiver="r1")

        def is_paused() -> bool:
            shown = running.lastProgress
            return shown is not None and '"paused"' in shown["sources"][0]["latestOffset"]

        assert eventually(is_paused)
        assert query.seen == [["a"]]
        rate.succeed("resume", *checkpoint)
        assert eventually(lambda: query.seen == [["a"], ["b"]])
    finally:
        query.spark.conf.unset(IDLE_PROGRESS)
        running.stop()

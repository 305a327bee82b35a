"""What a program records of its batches, and the dashboard that its driver serves."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import httpx
import pytest
from pyspark import SparkContext

from penstock.status import LocationReader, health, read_location
from penstock.streaming import StreamingContext
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.ui.served import SETTINGS, locations, url_in
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def test_batches_and_their_jobs_are_recorded(runs: Runs, continuing: None) -> None:
    """A failed batch, the one after it, and the failed one again in the next run."""
    fails = True

    def take(time: object, rdd: object) -> None:
        if fails and runs.clock.time_ms() == 1_002_000:
            raise KeyError("no such column")

    def define(ssc: StreamingContext) -> None:
        ssc.queueStream([[1, 2], [3, 4], [5], [6]]).foreachRDD(take)

    with runs.running_program(define) as stepper:
        for count in range(1, 5):
            runs.clock.advance(1000)
            assert eventually(lambda count=count: len(stepper.completed) == count)  # type: ignore[misc]
    status = read_location(str(runs.location))
    batches = {each.batch_id: each for each in status.batches}
    assert [each.state for each in batches.values()] == [
        "committed",
        "failed",
        "committed",
        "committed",
    ]
    assert batches[1].error is not None
    assert "KeyError" in batches[1].error
    assert batches[1].jobs[0].name.startswith("foreachRDD at test_dashboard.py:")
    assert batches[0].processing_ms is not None
    assert batches[0].commit_ms is not None
    assert batches[0].plan_ms is not None
    assert status.batch_interval_ms == 1000
    assert status.process is not None
    assert status.process.pid == os.getpid()
    assert status.is_running is False

    fails = False
    with runs.running_program(define) as stepper:
        stepper.wait_completed(1)  # it runs again
        stepper.step()
    again = {each.batch_id: each for each in read_location(str(runs.location)).batches}
    assert again[1].is_rerun
    assert again[1].state == "committed"


def test_what_a_program_receives_is_seen(runs: Runs, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("a\nb\nc\n")

    def define(ssc: StreamingContext) -> None:
        ssc.tailStream(str(log), name="numbers").foreachRDD(lambda rdd: rdd.count())

    with runs.running_program(define) as stepper:
        runs.wait_durable(3)
        reader = LocationReader(str(runs.location))
        waiting = reader.read()
        stepper.step()
        log.write_text("a\nb\nc\nd\n")
        runs.wait_durable(4)
        stepper.step()
        status = reader.read()
    (stream,) = waiting.streams
    assert (stream.name, stream.records, stream.rate) == ("numbers", 3, 3 / 60)
    (receiver,) = stream.receivers
    assert (receiver.state, waiting.is_running) == ("started", True)
    (taken,) = status.inputs
    assert (taken.name, taken.lag_records) == ("numbers", 0)
    assert [batch.records for batch in status.batches] == [3, 1]
    (consumer,) = status.streams[0].consumers
    assert consumer.location == status.location


def test_a_driver_serves_its_dashboard(
    runs: Runs, sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with spark_settings(sc, SETTINGS):
        context = runs.create()
    context.queueStream([[1]]).foreachRDD(lambda rdd: rdd.count())
    stepper = runs.start_context(context)
    url = url_in(caplog.text)
    stepper.step()
    assert eventually(lambda: locations(url)[0].get("committed") == 0)
    (status,) = locations(url)
    assert status["kind"] == "program"
    assert status["health"]["level"] in ("ok", "error")  # by a manual clock it is long ago
    assert "Batches" in httpx.get(f"{url}0", timeout=WAIT_S).text
    runs.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=WAIT_S)


def test_a_program_does_not_fail_for_its_dashboard(
    runs: Runs, sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SETTINGS, "spark.penstock.ui.host": "0.0.0.0"}
    with spark_settings(sc, settings):
        context = runs.create()
    context.queueStream([[1]]).foreachRDD(lambda rdd: rdd.count())
    runs.start_context(context).step()
    assert "There is no dashboard: a dashboard at 0.0.0.0 can be read by others" in caplog.text
    assert health(read_location(str(runs.location))).level in ("ok", "error")

"""/metrics of running programs, as a real Prometheus scrapes them."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from tests.journal.helpers import write_blocks
from tests.metrics.prometheus import needs_prometheus, prometheus
from tests.metrics.test_monitoring import dashboard_queries
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.structured.queries import Query
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def served(sc: SparkContext, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO, "penstock")
    with spark_settings(sc, {"spark.penstock.metrics.port": "0"}):
        yield


def url(caplog: pytest.LogCaptureFixture) -> str:
    (found,) = re.findall(r"Metrics are served at (http://\S+)", caplog.text)
    return str(found)


def lines_of(log: Path, ssc: StreamingContext) -> None:
    ssc.tailStream(str(log), name="lines").foreachRDD(lambda rdd: rdd.count())


@needs_prometheus
def test_a_prometheus_scrapes_a_program_and_evaluates_dashboard_and_alerts(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    log.write_text("a\nb\nc\n")
    runs = Runs(sc, tmp_path / "checkpoint", stream="lines")
    with runs.running_program(lambda ssc: lines_of(log, ssc)) as stepper:
        runs.wait_durable(3)
        stepper.step(3)
        target = url(caplog).removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, [target]) as server:

            def has(expression: str, wanted: float) -> bool:
                return eventually(lambda: server.value(expression) == wanted)

            assert has('penstock_batches_total{result="committed"}', 3)
            assert has('penstock_component_sent_events_total{component_id="lines"}', 3)
            assert has('penstock_journal_written_records_total{stream="lines"}', 3)
            assert has('penstock_receiver_state{stream="lines", state="started"}', 1)
            assert has("penstock_batch_interval_seconds", 1)
            assert has("penstock_input_waiting_records", 0)
            assert has("penstock_batch_processing_seconds_count", 3)
            assert has("penstock_location_readable", 1)
            assert has("penstock_lost_records_total", 0)
            assert server.value("penstock_journal_bytes") > 0  # type: ignore[operator]
            for expression in dashboard_queries():
                filled = expression.replace("$program", ".*").replace("$__rate_interval", "1m")
                server.query(filled)
            assert eventually(lambda: all(rule["health"] == "ok" for rule in server.rules()))
            firing = {rule["name"] for rule in server.rules() if rule["state"] != "inactive"}
            assert firing <= {"PenstockNoCommits"}  # the manual clock does not tick by itself
    with pytest.raises(httpx.ConnectError):
        httpx.get(url(caplog), timeout=WAIT_S)


def test_a_port_that_is_taken_stops_the_start_and_leaves_nothing(
    sc: SparkContext, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with spark_settings(sc, {"spark.penstock.metrics.port": port}):
            runs = Runs(sc, tmp_path / "checkpoint")
            with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
                runs.start_program(lambda ssc: ssc.queueStream([[1]]).foreachRDD(lambda rdd: None))
    assert StreamingContext.getActive() is None
    with runs.running_program(lambda ssc: ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)):
        pass  # the location is free


def test_the_dashboard_of_a_program_has_the_same_metrics(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"spark.penstock.ui.enabled": "true", "spark.penstock.ui.port": "0"}
    runs = Runs(sc, tmp_path / "checkpoint")
    with (
        spark_settings(sc, settings),
        runs.running_program(
            lambda ssc: ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
        ) as stepper,
    ):
        stepper.step(2)
        (home,) = re.findall(r"The dashboard is at (http://\S+)", caplog.text)
        shown = [httpx.get(each, timeout=WAIT_S).text for each in (f"{home}metrics", url(caplog))]
    for text in shown:
        assert re.search(r'penstock_batches_total{program=".+",result="committed"} 2.0', text)


def failing(frame: object, batch_id: int) -> None:
    if batch_id == 1:
        raise ValueError("planned")


def test_a_query_is_counted_and_logged_and_stays_when_it_failed(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = JournalStream.create(open_storage(tmp_path / "j"), "clicks", RecordFormat("string"))
    write_blocks(stream, [["a", "b"], ["c"]])
    session = SparkSession.builder.getOrCreate().newSession()
    options = {"maxOffsetsPerTrigger": "2", "backpressure.enabled": "true"}
    query = Query(session, stream, tmp_path / "checkpoint", options)
    query.on_batch = failing
    with pytest.raises(Exception, match="planned"):
        query.drain()

    def shown() -> dict[str, float]:
        text = httpx.get(url(caplog), timeout=WAIT_S).text
        lines = (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
        return {re.sub(r'program="[^"]*"', "P", name): float(value) for name, _, value in lines}

    assert eventually(lambda: shown().get("penstock_program_up{P}") == 0)
    found = shown()
    assert found['penstock_batches_total{P,result="committed"}'] == 1
    assert found['penstock_batches_total{P,result="failed"}'] == 1
    labels = 'component_id="clicks",component_kind="input",P'
    assert found[f"penstock_component_sent_events_total{{{labels}}}"] == 2
    assert found['penstock_batch_limit_records{P,stream="clicks"}'] == 1000  # the initial rate
    (line,) = (each for each in caplog.messages if each.startswith("batch "))
    assert re.fullmatch(
        r"batch query=\S+ batch_id=0 batch_time=\S+Z result=committed records=2 "
        r"processing_ms=\d+",
        line,
    )

"""The dashboard of a session's queries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.conf import UiSettings
from penstock.status import health, read_location
from penstock.structured.listener import RateListener
from penstock.structured.registration import QueriesDashboard
from tests.journal.helpers import write_blocks
from tests.structured.queries import Query
from tests.ui.served import locations, program_page, url_in
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def listening(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Have the session's queries shown: the tests' own one is registered without a dashboard."""
    shown = QueriesDashboard(UiSettings(port=0), None)
    listener = RateListener(spark, str(tmp_path), 100, shown.show)
    spark.streams.addListener(listener)
    yield
    spark.streams.removeListener(listener)
    if shown._served is not None:
        shown._served.close()


def test_queries_are_shown_from_their_start(
    query: Query, listening: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    write_blocks(query.stream, [["a", "b"], ["c"]])
    location = query.location.with_name("other")
    other = replace(query, location=location, options={"consumer": "other"})
    query.drain()
    other.drain()
    url = url_in(caplog.text)
    assert caplog.text.count("The dashboard is at") == 1
    first, second = locations(url)
    assert (first["kind"], first["committed"]) == ("query", 0)
    assert second["location"].endswith("/other")
    (batch,) = first["batches"]
    assert (batch["state"], batch["records"]) == ("committed", 3)
    assert batch["processing_ms"] is not None


def test_a_query_shows_its_trigger_and_what_failed_and_ran_again(query: Query) -> None:
    write_blocks(query.stream, [["a", "b"], ["c"]])

    def fail(frame: DataFrame, batch_id: int) -> None:
        raise ValueError("the disk is full")

    failing = replace(query, on_batch=fail).start("2 seconds")
    with pytest.raises(StreamingQueryException):
        failing.awaitTermination(int(WAIT_S))
    path = str(query.location)
    assert eventually(lambda: read_location(path).batches[-1].state == "failed")
    status = read_location(path)
    assert status.batch_interval_ms == 2000
    assert status.process is not None
    assert status.batches[-1].error == "ValueError: the disk is full"
    assert health(status).level == "error"
    page = program_page(status)
    assert all(word in page for word in ("the disk is full", "Batch interval", "Failed"))
    query.drain()
    assert eventually(lambda: read_location(path).batches[0].is_rerun)
    status = read_location(path)
    assert (status.batches[0].state, status.batches[0].error) == ("committed", None)
    assert status.batch_interval_ms is None
    assert not read_location(path).problems

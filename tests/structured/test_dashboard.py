"""The dashboard of a session's queries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.conf import UiSettings
from penstock.structured.dashboard import QueriesDashboard
from penstock.structured.listener import RateListener
from tests.journal.helpers import write_blocks
from tests.structured.queries import Query
from tests.ui.served import locations, url_in

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

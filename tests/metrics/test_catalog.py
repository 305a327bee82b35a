"""The list of metrics is the code's, the documentation's, and what is really exported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli.ingest.process import Counts
from penstock.metrics import CATALOG, BatchMetrics, Metric, Sample
from penstock.metrics.catalog import BUILD_INFO
from penstock.metrics.exporter import location_samples
from tests.metrics.statuses import full_status

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
_BOUNDED = {
    "component_id",
    "component_kind",
    "consumer",
    "program",
    "receiver",
    "result",
    "state",
    "stream",
    "version",
}
"""What programs and operators name. No batch, no writer, no partition, nothing of a record."""


def documented() -> list[Metric]:
    rows = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.M)
    return [
        Metric(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text)
        for name, kind, labels, text in rows
    ]


def test_the_page_lists_each_metric_as_the_code_has_it_and_no_other() -> None:
    assert documented() == CATALOG


def samples_of_everything() -> list[Sample]:
    batches = BatchMetrics("report", 1000)
    batches.planned({"clicks": 5}, {"clicks": 100.0}, {"clicks": 30})
    batches.committed({"clicks": 5}, 3, 40)
    counts = Counts("clicks", "r")
    return [*batches.samples(), *location_samples("report", full_status()), *counts.samples()]


def test_each_metric_is_exported_with_its_labels_and_no_other_is() -> None:
    exported = samples_of_everything()
    assert {each.metric.name for each in exported} | {BUILD_INFO.name} == {
        each.name for each in CATALOG
    }
    for metric, labels, _ in exported:
        assert len(labels) == len(metric.labels), metric.name
    series = [(metric.name, labels) for metric, labels, _ in exported]
    assert len(series) == len(set(series)), "Prometheus refuses a scrape with one series twice"


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_names_and_labels_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"penstock_[a-z]+(_[a-z]+)*", metric.name)
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert not re.search(r"_(ms|milliseconds|kb|mb|minutes|percent)\b", metric.name)
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert set(metric.labels) <= _BOUNDED
    assert metric.help.endswith(".")

"""deploy/monitoring is what Prometheus takes, and stands on metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from penstock.metrics import CATALOG
from tests.metrics.prometheus import MONITORING, needs_prometheus

ALERTS = yaml.safe_load((MONITORING / "penstock-alerts.yml").read_text())
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())


def promtool(*arguments: str) -> None:
    found = subprocess.run(
        ["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


@needs_prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "penstock-alerts.yml"),
        ("test", "rules", "penstock-alerts-test.yml"),
    ],
    ids=lambda arguments: arguments[-1],
)
def test_promtool_takes(arguments: tuple[str, ...]) -> None:
    promtool(*arguments)


def alerts() -> list[dict[str, object]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def test_each_alert_has_a_unit_test() -> None:
    tested = (MONITORING / "penstock-alerts-test.yml").read_text()
    for rule in alerts():
        assert str(rule["alert"]) in tested
        assert rule["labels"]["severity"] in ("warning", "critical")  # type: ignore[index]


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bpenstock_\w+", expression))


def exported() -> set[str]:
    names = {metric.name for metric in CATALOG}
    histograms = [metric.name for metric in CATALOG if metric.kind == "histogram"]
    return names | {
        f"{name}{part}" for name in histograms for part in ("_sum", "_count", "_bucket")
    }


@pytest.mark.parametrize(
    "expression", [*dashboard_queries(), *(str(rule["expr"]) for rule in alerts())]
)
def test_a_query_names_metrics_that_exist(expression: str) -> None:
    assert names_in(expression) <= exported()


def test_the_dashboard_shows_what_there_is_to_know() -> None:
    shown = {
        re.sub(r"_(sum|count|bucket)$", "", n) for e in dashboard_queries() for n in names_in(e)
    }
    alerted = {
        re.sub(r"_(sum|count|bucket)$", "", n) for r in alerts() for n in names_in(str(r["expr"]))
    }
    left_out = {metric.name.removeprefix("penstock_") for metric in CATALOG} - {
        name.removeprefix("penstock_") for name in shown | alerted
    }
    assert left_out == {"build_info"}


def test_the_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells

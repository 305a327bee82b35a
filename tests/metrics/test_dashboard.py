"""/metrics of a dashboard: the same port, the same token."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from penstock.metrics import BatchMetrics, Exporter
from penstock.ui import DashboardSettings, start_dashboard
from penstock.ui import serve as dashboard
from tests.ui.world import Batches, program
from tests.waiting import WAIT_S


@pytest.fixture
def location(tmp_path: Path) -> str:
    program(tmp_path / "report", Batches(5))
    return str(tmp_path / "report")


def test_a_dashboard_of_any_locations_has_metrics_of_what_it_reads(location: str) -> None:
    served = start_dashboard([location], DashboardSettings(port=0))
    try:
        answer = httpx.get(f"{served.url}metrics", timeout=WAIT_S)
    finally:
        served.close()
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'penstock_location_readable{program="report"} 1.0' in answer.text
    assert "penstock_batches_total{" not in answer.text


def test_a_drivers_dashboard_has_its_counts_behind_its_token(tmp_path: Path, location: str) -> None:
    (tmp_path / "token").write_text("s3cret")
    exporter = Exporter()
    exporter.add_program(BatchMetrics("report", 1000))
    settings = DashboardSettings(port=0, token_file=str(tmp_path / "token"))
    served = start_dashboard([location], settings, exporter)
    try:
        assert httpx.get(f"{served.url}metrics", timeout=WAIT_S).status_code == 401
        right = {"Authorization": "Bearer s3cret"}
        text = httpx.get(f"{served.url}metrics", headers=right, timeout=WAIT_S).text
    finally:
        served.close()
    assert 'penstock_batches_total{program="report",result="committed"} 0.0' in text


def test_without_the_client_a_dashboard_has_pages_and_names_the_extra(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "exporter_for", lambda settings: None)
    served = start_dashboard([location], DashboardSettings(port=0))
    try:
        answer = httpx.get(f"{served.url}metrics", timeout=WAIT_S)
        assert httpx.get(served.url, timeout=WAIT_S).status_code == 200
    finally:
        served.close()
    assert answer.status_code == 404
    assert "penstock-spark[metrics]" in answer.text

"""/metrics of penstock ingest."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.free_port import free_port
from tests.ingest_process import Ingest, ingest
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow


def following(folder: Path, port: int) -> list[str]:
    (folder / "app.log").write_text("a\nb\nc\n")
    journal = ["--journal", str(folder / "journal"), "--stream", "s"]
    return ["tail", str(folder / "app.log"), *journal, "--metrics-port", str(port)]


def scraped(process: Ingest, port: int) -> dict[str, str]:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S).text
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")


def test_records_and_the_stream_are_shown_also_after_a_takeover(tmp_path: Path) -> None:
    port = free_port()
    labels = 'component_id="s/ingest",component_kind="receiver",program="ingest"'
    with ingest(tmp_path, "one", *following(tmp_path, port)) as one:
        one.wait_log("Metrics are served at")
        one.wait_receiving()
        sent = f"penstock_component_sent_events_total{{{labels}}}"
        assert eventually(lambda: float(scraped(one, port)[sent]) == 3)
        found = scraped(one, port)
        assert float(found[f"penstock_component_received_events_total{{{labels}}}"]) == 3
        state = 'program="ingest",receiver="ingest",state="started",stream="s"'
        assert eventually(
            lambda: float(scraped(one, port)[f"penstock_receiver_state{{{state}}}"]) == 1
        )
        with ingest(tmp_path, "two", *following(tmp_path, port)) as two:
            two.wait_log("Metrics are served at")
            assert one.wait() == 3
            assert float(scraped(two, port)[sent]) == 0
            assert two.drain() == 0


def test_without_the_port_nothing_is_served_and_a_taken_one_is_wrong(tmp_path: Path) -> None:
    port = free_port()
    with ingest(tmp_path, "one", *following(tmp_path, port)) as one:
        one.wait_log("Metrics are served at")
        other = [*following(tmp_path, port), "--receiver", "other"]
        with ingest(tmp_path, "two", *other) as two:
            assert two.wait() == 2
            assert re.search(rf"penstock: error: metrics cannot be served at .*:{port}", two.log())

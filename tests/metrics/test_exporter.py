from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import ConfigError
from penstock.metrics import BatchMetrics, Exporter, Sample, exporter
from penstock.metrics.catalog import BUCKETS_S, CONSUMER_LAG, SENT
from penstock.metrics.exporter import location_samples
from penstock.status import LocationStatus, Unreadable
from tests.metrics.prometheus import needs_prometheus
from tests.metrics.statuses import NOW_MS, full_status


def values(exporter: Exporter) -> dict[str, float]:
    """Return each series and its value, as a scraper reads them."""
    _, body = exporter.render()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for each in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(each.labels.items()))
            key = f"{each.name}{{{labels}}}"
            assert key not in found, f"{key} twice"
            found[key] = each.value
    return found


def test_batches_are_counted() -> None:
    batches = BatchMetrics("p", 2000)
    batches.planned({"a": 5, "b": 0}, {"a": 50.5}, {"a": 9})
    batches.planned({"a": 7, "b": 1}, {}, {})
    batches.committed({"a": 5, "b": 0}, 20, 700)
    batches.failed(400_000, None)
    batches.planned({"a": 1}, {"b": 9.0}, {"b": 40})
    shown = Exporter()
    shown.add_program(batches)
    found = values(shown)

    assert found["penstock_batches_total{program=p,result=committed}"] == 1
    assert found["penstock_batches_total{program=p,result=failed}"] == 1
    assert found["penstock_batches_running{program=p}"] == 1
    assert found["penstock_batch_interval_seconds{program=p}"] == 2
    assert {key: value for key, value in found.items() if "limit" in key} == {
        "penstock_batch_limit_records{program=p,stream=b}": 9
    }
    assert {key: value for key, value in found.items() if "waiting" in key} == {
        "penstock_input_waiting_records{program=p,stream=b}": 40
    }
    labels = "component_id=a,component_kind=input,program=p"
    assert found[f"penstock_component_received_events_total{{{labels}}}"] == 13
    assert found[f"penstock_component_sent_events_total{{{labels}}}"] == 5
    delay = "penstock_batch_scheduling_delay_seconds"
    assert found[f"{delay}_count{{program=p}}"] == 2
    assert found[f"{delay}_sum{{program=p}}"] == pytest.approx(400.02)
    assert found[f"{delay}_bucket{{le=0.01,program=p}}"] == 0
    assert found[f"{delay}_bucket{{le=0.025,program=p}}"] == 1
    assert found[f"{delay}_bucket{{le={BUCKETS_S[-1]},program=p}}"] == 1
    assert found[f"{delay}_bucket{{le=+Inf,program=p}}"] == 2
    assert found["penstock_batch_processing_seconds_count{program=p}"] == 1


def test_a_location_is_shown() -> None:
    shown = Exporter()
    shown.add("status", lambda: location_samples("p", full_status()))
    found = values(shown)

    def of(name: str) -> dict[str, float]:
        return {
            key.partition("{")[2][:-1]: value
            for key, value in found.items()
            if key.startswith(f"penstock_{name}{{")
        }

    assert of("location_readable") == {"program=p": 1}
    assert of("health_level") == {"program=p": 3}
    assert of("location_problems") == {"program=p": 1}
    assert of("input_lag_records") == {"program=p,stream=clicks": 30}
    assert of("input_paused") == {"program=p,stream=clicks": 1, "program=p,stream=topic": 0}
    assert of("consumer_lag_records") == {
        "consumer=reader,program=p,stream=clicks": 0,
        "consumer=report,program=p,stream=clicks": 30,
    }
    assert of("consumer_lag_seconds")["consumer=report,program=p,stream=clicks"] == 2.5
    assert of("consumer_last_commit_timestamp_seconds") == {
        "consumer=report,program=p,stream=clicks": NOW_MS / 1000 - 9
    }
    assert {key for key, value in of("receiver_state").items() if value} == {
        "program=p,receiver=r,state=restarting,stream=clicks"
    }
    assert of("receiver_errors_total") == {"program=p,receiver=r,stream=clicks": 3}
    assert of("journal_written_records_total")["program=p,stream=clicks"] == 130
    assert of("journal_bytes")["program=p,stream=clicks"] == 300
    assert of("journal_uncommitted_bytes")["program=p,stream=clicks"] == 200
    assert of("journal_max_bytes")["program=p,stream=clicks"] == 1000
    assert of("journal_damaged")["program=p,stream=clicks"] == 2
    assert of("lost_records_total")["program=p,stream=clicks"] == 10
    assert of("lost_records_total")["program=p,stream=topic"] == 7
    assert of("dead_letter_records") == {"program=p,stream=clicks": 4}


@needs_prometheus
def test_promtool_finds_nothing_to_say_about_them() -> None:
    shown = Exporter()
    shown.add_program(BatchMetrics("p", 2000))
    shown.add("status", lambda: location_samples("p", full_status()))
    found = subprocess.run(
        ["promtool", "check", "metrics", "--extended"],
        input=shown.render()[1],
        capture_output=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, b"")


class Reads:
    """Statuses, one after the other."""

    def __init__(self, *statuses: LocationStatus) -> None:
        self._statuses = list(statuses)

    def all(self) -> list[LocationStatus]:
        return [self._statuses.pop(0)]


def test_the_records_that_were_written_never_fall_when_a_newest_block_is_damaged() -> None:
    before = full_status()
    (stream, *_) = before.streams
    damaged = replace(stream, writers=(replace(stream.writers[0], end_offset=2),))
    shown = Exporter()
    reads = Reads(before, replace(before, streams=(damaged,)))
    shown.add_locations(reads, program="p")  # type: ignore[arg-type]
    key = "penstock_journal_written_records_total{program=p,stream=clicks}"
    assert [values(shown)[key], values(shown)[key]] == [130, 130]


def test_a_location_that_cannot_be_read_says_so() -> None:
    found = list(location_samples("p", Unreadable("file:/x", "x", "gone")))
    assert [(each.metric.name, each.value) for each in found] == [("penstock_location_readable", 0)]


def test_a_program_that_failed_stays_as_one_that_is_down() -> None:
    shown = Exporter()
    ended, failed = BatchMetrics("ended", None), BatchMetrics("failed", None)
    for each in (ended, failed):
        shown.add_program(each)
    shown.remove_program(ended, failed=False)
    shown.remove_program(failed, failed=True)
    found = {key: value for key, value in values(shown).items() if "program_up" in key}
    assert found == {"penstock_program_up{program=failed}": 0}


def test_a_failure_is_forgotten_when_the_program_runs_again() -> None:
    shown = Exporter()
    failed, again, other = BatchMetrics("q", None), BatchMetrics("q", None), BatchMetrics("r", None)
    shown.add_program(failed)
    shown.remove_program(failed, failed=True)
    shown.remove_program(other, failed=True)
    shown.add_program(again)
    shown.remove_program(again, failed=False)
    found = {key: value for key, value in values(shown).items() if "program_up" in key}
    assert found == {"penstock_program_up{program=r}": 0}


def test_dead_letters_begin_with_none() -> None:
    """Of a gauge that begins with the first ones delta() says 0, and no alert fires."""
    status = full_status()
    shown = Exporter()
    shown.add("before", lambda: location_samples("p", replace(status, dead_letters={})))
    assert values(shown)["penstock_dead_letter_records{program=p,stream=clicks}"] == 0


def test_labels_are_bounded_and_hostile_ones_are_text() -> None:
    def many() -> Iterator[Sample]:
        yield Sample(CONSUMER_LAG, ("p", "s", 'a"\n} x 1'), 1)
        for number in range(5000):
            yield Sample(CONSUMER_LAG, ("p", "s", str(number)), number)

    shown = Exporter()
    shown.add("many", many)
    shown.add("again", many)  # the same series from two sources
    found = [key for key in values(shown) if "consumer_lag" in key]
    assert len(found) == 1000
    assert found[0] == 'penstock_consumer_lag_records{consumer=a"\n} x 1,program=p,stream=s}'


def test_exporters_share_nothing_and_leave_the_global_registry_alone() -> None:
    before = prometheus_client.generate_latest()
    first, second = Exporter(), Exporter()
    first.add_program(BatchMetrics("first", None))
    assert "first" not in second.render()[1].decode()
    assert b"penstock" not in before + prometheus_client.generate_latest()


def test_openmetrics_is_rendered_where_it_is_accepted() -> None:
    content_type, body = Exporter().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert Exporter().render("")[0].startswith("text/plain")


def test_without_the_client_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_client(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(exporter, "import_module", no_client)
    with pytest.raises(ConfigError, match=re.escape("penstock-spark[metrics]")):
        Exporter()


def test_batches_may_be_counted_by_several_threads() -> None:
    batches = BatchMetrics("p", None)

    def count() -> None:
        for _ in range(500):
            batches.planned({"a": 1}, {}, {})
            batches.committed({"a": 1}, 1, 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (sent,) = (each.value for each in batches.samples() if each.metric is SENT)
    assert sent == 2000

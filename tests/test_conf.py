"""Settings: read with Spark's names, refused by name."""

from __future__ import annotations

import pytest

from penstock.conf import StreamingSettings
from penstock.errors import ConfigError


def test_defaults_are_sparks() -> None:
    settings = StreamingSettings.from_conf({})
    assert settings == StreamingSettings()
    assert (settings.block_interval_ms, settings.concurrent_jobs) == (200, 1)
    assert settings.min_batches_to_retain == 100


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("50", 50), ("50ms", 50), ("2s", 2000), ("1m", 60_000), ("1h", 3_600_000)],
)
def test_durations(text: str, expected_ms: int) -> None:
    settings = StreamingSettings.from_conf({"spark.streaming.blockInterval": text})
    assert settings.block_interval_ms == expected_ms


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spark.streaming.blockInterval", "0"),
        ("spark.streaming.blockInterval", "-5ms"),
        ("spark.streaming.blockInterval", "5 parsecs"),
        ("spark.streaming.concurrentJobs", "0"),
        ("spark.streaming.concurrentJobs", "1.5"),
        ("spark.streaming.gracefulStopTimeout", "nan"),
        ("spark.streaming.receiverRestartDelay", ""),
        ("spark.sql.streaming.minBatchesToRetain", "none"),
        ("spark.penstock.journal.compression", "rar"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamingSettings.from_conf({name: text})
    assert name in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "Hint: give" in str(caught.value)

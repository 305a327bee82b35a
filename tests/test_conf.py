"""Settings: read with Spark's names, refused by name."""

from __future__ import annotations

import pytest

from penstock.conf import (
    CHECKPOINT_FILE_MANAGER,
    DEFAULT_INITIAL_RATE,
    RateSettings,
    StreamingSettings,
    session_setting_names,
    settings_without_effect,
)
from penstock.errors import ConfigError


def test_defaults_are_sparks() -> None:
    settings = StreamingSettings.from_conf({})
    assert settings == StreamingSettings()
    assert (settings.block_interval_ms, settings.concurrent_jobs) == (200, 1)
    assert settings.min_batches_to_retain == 100


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("50", 50),
        ("50ms", 50),
        ("2s", 2000),
        ("1m", 60_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    settings = StreamingSettings.from_conf({"spark.streaming.blockInterval": text})
    assert settings.block_interval_ms == expected_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 5), ("2k", 2048), ("500m", 500 << 20), ("20G", 20 << 30), ("1tb", 1 << 40)],
)
def test_sizes(text: str, expected: int) -> None:
    settings = StreamingSettings.from_conf({"spark.penstock.journal.maxBytes": text})
    assert settings.journal_max_bytes == expected


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
        ("spark.streaming.fileStream.minRememberDuration", "0"),
        ("spark.streaming.minRememberDuration", "a minute"),
        ("spark.streaming.stopGracefullyOnShutdown", "yes"),
        ("spark.streaming.unpersist", "1"),
        ("spark.penstock.journal.maxBytes", "0"),
        ("spark.penstock.journal.maxBytes", "much"),
        ("spark.penstock.journal.maxLag", "0"),
        ("spark.penstock.journal.whenFull", "drop"),
        ("spark.files.ignoreMissingFiles", ""),
        ("spark.sql.streaming.minBatchesToRetain", "none"),
        ("spark.penstock.journal.compression", "rar"),
        ("spark.streaming.checkpoint.directory", " "),
        ("spark.streaming.backpressure.enabled", "yes"),
        ("spark.streaming.backpressure.rateEstimator", "PID"),
        ("spark.streaming.backpressure.rateEstimator", "my module"),
        ("spark.streaming.backpressure.initialRate", "0"),
        ("spark.streaming.backpressure.initialRate", "many"),
        ("spark.streaming.receiver.maxRate", "-1"),
        ("spark.streaming.receiver.maxRate", "0"),
        ("spark.streaming.receiver.maxRate", "nan"),
        ("spark.streaming.receiver.maxRate", "inf"),
        ("spark.streaming.backpressure.pid.minRate", "0.0"),
        ("spark.streaming.backpressure.pid.proportional", "-0.1"),
        ("spark.streaming.backpressure.pid.integral", "NaN"),
        ("spark.streaming.backpressure.pid.derived", ""),
        ("spark.streaming.kafka.maxRatePerPartition", "-1"),
        ("spark.streaming.kafka.minRatePerPartition", "0"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamingSettings.from_conf({name: text})
    assert name in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "Hint: give" in str(caught.value)


def test_settings_of_sparks_write_ahead_logs_have_no_effect() -> None:
    names = [
        "spark.streaming.driver.writeAheadLog.allowBatching",
        "spark.streaming.receiver.writeAheadLog.maxFailures",
    ]
    conf = dict.fromkeys([*names, "spark.streaming.receiver.writeAheadLog.enable"], "true")
    assert settings_without_effect(conf) == dict.fromkeys(names)
    assert StreamingSettings.from_conf(conf).write_ahead_log is True
    assert StreamingSettings.from_conf({}).write_ahead_log is None


def test_sparks_file_manager_has_no_effect() -> None:
    sparks = "spark.sql.streaming.checkpointFileManagerClass"
    assert settings_without_effect({sparks: "com.example.Files"}) == {
        sparks: CHECKPOINT_FILE_MANAGER
    }
    both = {sparks: "com.example.Files", CHECKPOINT_FILE_MANAGER: "example.Files"}
    assert settings_without_effect(both) == {}
    assert sparks in session_setting_names()  # it may be set for a session alone


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("spark.penstock.journal.maxByte", "spark.penstock.journal.maxBytes"),
        ("spark.penstock.journal.max_bytes", "spark.penstock.journal.maxBytes"),
        ("spark.streaming.backPressure.enable", "spark.streaming.backpressure.enabled"),
        ("spark.streaming.reciever.maxRate", "spark.streaming.receiver.maxRate"),
        ("spark.penstock.blockInterval", "spark.streaming.blockInterval"),
        ("spark.streaming.minBatchesToRetain", "spark.sql.streaming.minBatchesToRetain"),
        ("spark.streaming.ui.retainedBatches", None),
    ],
)
def test_a_misspelt_setting_is_one_without_effect(misspelt: str, meant: str | None) -> None:
    conf = {misspelt: "1", "spark.streaming.blockInterval": "1s"}
    assert settings_without_effect(conf) == {misspelt: meant}


def test_rate_settings_are_sparks() -> None:
    bp = "spark.streaming.backpressure"
    conf = {
        f"{bp}.enabled": "true",
        f"{bp}.rateEstimator": "package.module.Estimator",
        f"{bp}.initialRate": "500",
        f"{bp}.pid.minRate": "1.5",
        f"{bp}.pid.proportional": "0.9",
        f"{bp}.pid.integral": "0.3",
        f"{bp}.pid.derived": "0.1",
        "spark.streaming.receiver.maxRate": "1e5",
        "spark.streaming.kafka.maxRatePerPartition": "20",
        "spark.streaming.kafka.minRatePerPartition": "2",
    }
    expected = RateSettings(
        True, "package.module.Estimator", 500.0, 1e5, 1.5, 0.9, 0.3, 0.1, 20.0, 2
    )
    assert StreamingSettings.from_conf(conf).rate == expected
    assert StreamingSettings.from_conf({}).rate == RateSettings()
    no_limit = {"spark.streaming.kafka.maxRatePerPartition": "0"}  # Spark's default, said aloud
    assert RateSettings.from_conf(no_limit) == RateSettings()


@pytest.mark.parametrize(
    ("enabled", "initial", "highest", "expected"),
    [
        (False, None, None, None),
        (False, 10.0, 200.0, 200.0),
        (True, None, None, DEFAULT_INITIAL_RATE),
        (True, None, 200.0, 200.0),
        (True, 10.0, None, 10.0),
        (True, 10.0, 200.0, 10.0),
        (True, 500.0, 200.0, 200.0),
    ],
)
def test_the_first_batch_has_a_limit_when_back_pressure_is_on(
    enabled: bool, initial: float | None, highest: float | None, expected: float | None
) -> None:
    settings = RateSettings(backpressure_enabled=enabled, initial_rate=initial, max_rate=highest)
    assert settings.first_rate == expected


@pytest.mark.parametrize(
    ("conf", "remembered_ms"),
    [
        ({}, 60_000),
        ({"spark.streaming.fileStream.minRememberDuration": "90"}, 90_000),
        ({"spark.streaming.fileStream.minRememberDuration": "1500ms"}, 1500),
        ({"spark.streaming.minRememberDuration": "2m"}, 120_000),
        (
            {
                "spark.streaming.minRememberDuration": "2m",
                "spark.streaming.fileStream.minRememberDuration": "5s",
            },
            5000,
        ),
    ],
)
def test_remember_duration_is_in_seconds_as_in_spark(
    conf: dict[str, str], remembered_ms: int
) -> None:
    assert StreamingSettings.from_conf(conf).min_remember_duration_ms == remembered_ms

"""Orders: files in the checkpoint location."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError, LogFormatError
from penstock.rate import RateOverride, RateOverrides
from penstock.storage import Storage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


@pytest.mark.parametrize(
    "override",
    [RateOverride(), RateOverride(0.5), RateOverride(paused=True), RateOverride(7.0, paused=True)],
)
def test_the_last_override_is_effective(storage: Storage, override: RateOverride) -> None:
    overrides = RateOverrides(storage)
    overrides.set("clicks", RateOverride(max_rate=1.0))
    overrides.set("clicks", override)
    assert RateOverrides(storage).get("clicks") == override
    assert overrides.get("other") == RateOverride()


def test_an_override_for_what_the_settings_say_leaves_no_file(storage: Storage) -> None:
    overrides = RateOverrides(storage)
    overrides.set("clicks", RateOverride(max_rate=1.0))
    overrides.set("clicks", RateOverride())
    assert storage.list("rate") == []


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="max_rate is"):
        RateOverride(max_rate=rate)


def test_a_stream_name_never_becomes_another_path(storage: Storage) -> None:
    with pytest.raises(ConfigError, match="not allowed"):
        RateOverrides(storage).set("../offsets/0", RateOverride(max_rate=1.0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "maxRate": 1, "paused": false}',
        '{"version": 1, "maxRate": 0, "paused": false}',
        '{"version": 1, "maxRate": "fast", "paused": false}',
        '{"version": 1, "maxRate": 1, "paused": "no"}',
        '{"version": 1, "maxRate": 1}',
    ],
)
def test_a_damaged_override_is_named(storage: Storage, text: str) -> None:
    storage.create("rate/clicks.json", text.encode())
    with pytest.raises(LogFormatError, match=r"penstock rate.*clicks\.json"):
        RateOverrides(storage).get("clicks")

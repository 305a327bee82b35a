"""Orders: files in the checkpoint location."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError, LogFormatError
from penstock.rate import RateOrder, RateOrders
from penstock.storage import Storage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


@pytest.mark.parametrize(
    "order", [RateOrder(), RateOrder(0.5), RateOrder(paused=True), RateOrder(7.0, paused=True)]
)
def test_the_last_order_is_in_force(storage: Storage, order: RateOrder) -> None:
    orders = RateOrders(storage)
    orders.give("clicks", RateOrder(max_rate=1.0))
    orders.give("clicks", order)
    assert RateOrders(storage).get("clicks") == order
    assert orders.get("other") == RateOrder()


def test_an_order_for_what_the_settings_say_leaves_no_file(storage: Storage) -> None:
    orders = RateOrders(storage)
    orders.give("clicks", RateOrder(max_rate=1.0))
    orders.give("clicks", RateOrder())
    assert storage.list("rate") == []


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="max_rate is"):
        RateOrder(max_rate=rate)


def test_a_stream_name_never_becomes_another_path(storage: Storage) -> None:
    with pytest.raises(ConfigError, match="not allowed"):
        RateOrders(storage).give("../offsets/0", RateOrder(max_rate=1.0))


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
def test_a_damaged_order_is_named(storage: Storage, text: str) -> None:
    storage.create("rate/clicks.json", text.encode())
    with pytest.raises(LogFormatError, match=r"clicks\.json.*penstock rate"):
        RateOrders(storage).get("clicks")

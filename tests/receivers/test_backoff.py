"""Delays between attempts to connect."""

from __future__ import annotations

import pytest

from penstock.receivers.backoff import Backoff, reconnect_delay_ms


@pytest.mark.parametrize(
    ("failures", "least_ms", "most_ms"),
    [(1, 50, 100), (2, 100, 200), (5, 800, 1600), (10, 15_000, 30_000), (9_999, 15_000, 30_000)],
)
def test_delays_double_up_to_a_cap_and_vary(failures: int, least_ms: int, most_ms: int) -> None:
    assert reconnect_delay_ms(failures, 0.0) == least_ms
    assert reconnect_delay_ms(failures, 1.0) == most_ms


def test_a_success_makes_the_next_failure_the_first() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.failed() for _ in range(3)] == [100, 200, 400]
    backoff.worked()
    assert backoff.failed() == 100

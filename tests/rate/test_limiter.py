"""The rate limiter on a manual clock, and once with real threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import SystemClock
from penstock.errors import ConfigError
from penstock.rate import RateLimiter
from penstock.testing import ManualClock
from tests.waiting import WAIT_S, eventually

BLOCK_MS = 200


class SteppingClock(ManualClock):
    """Whoever waits moves it on himself: a thread alone needs no one else."""

    def wait_until(self, monotonic_ms: int, cancelled: threading.Event) -> bool:
        self.advance(max(0, monotonic_ms - self.monotonic_ms()))
        return not cancelled.is_set()


def limited(rate: float | None) -> tuple[RateLimiter, SteppingClock]:
    clock = SteppingClock(1_000_000)
    return RateLimiter(rate, BLOCK_MS, clock), clock


def times_ms(limiter: RateLimiter, clock: ManualClock, counts: list[int]) -> list[int]:
    """Store that many records, one after the other; return when each was let through."""
    begun_ms, stopped, times = clock.time_ms(), threading.Event(), []
    for count in counts:
        assert limiter.acquire(count, stopped)
        times.append(clock.time_ms() - begun_ms)
    return times


@pytest.mark.parametrize("rate", [0.3, 1.0, 7.5, 100.0, 3333.3])
def test_single_records_come_evenly(rate: float) -> None:
    times = times_ms(*limited(rate), [1] * 200)
    assert times[-1] == pytest.approx(200 / rate * 1000, rel=0.02, abs=1000 / rate + 1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) - min(gaps) <= 1  # clocks count whole milliseconds


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_every_size_of_store_is_charged_alike(count: int) -> None:
    times = times_ms(*limited(10_000.0), [count] * (50_000 // count))
    assert times[-1] == pytest.approx(5000, abs=BLOCK_MS + count / 10)


def test_a_rate_below_one_is_not_unlimited() -> None:
    limiter, clock = limited(0.01)
    assert times_ms(limiter, clock, [1, 1, 1])[1:] == [100_200, 200_200]


def test_time_without_stores_is_saved_up_for_one_block_only() -> None:
    limiter, clock = limited(1000.0)
    clock.advance(3_600_000)
    stored_at_once = 0
    while limiter.try_acquire(1) == 0:
        stored_at_once += 1
    assert stored_at_once == BLOCK_MS


def test_a_thread_that_is_charging_refuses_no_other() -> None:
    limiter, _ = limited(None)
    with limiter._turn:  # as acquire() while it charges
        assert limiter.try_acquire(1) == 0


def test_a_store_beyond_the_bucket_leaves_a_debt() -> None:
    limiter, clock = limited(1000.0)
    assert times_ms(limiter, clock, [5000, 1]) == [BLOCK_MS, 5001]


@settings(max_examples=300)
@given(
    rate=st.floats(0.05, 1e6),
    # Stores are seconds long, whatever the rate: a wait on this clock is a poll each block.
    stores=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3000)), max_size=40),
)
def test_no_span_lets_more_through_than_it_may(
    rate: float, stores: list[tuple[float, int]]
) -> None:
    limiter, clock = limited(rate)
    let_through: list[tuple[int, int]] = []
    for seconds, pause_ms in stores:
        count = max(1, round(rate * seconds))
        clock.advance(pause_ms)
        assert limiter.acquire(count, threading.Event())
        let_through.append((clock.time_ms(), count))
    for first in range(len(let_through)):
        total = 0
        for time_ms, count in let_through[first:]:
            total += count
            burst = rate * BLOCK_MS / 1000
            allowed = rate * (time_ms - let_through[first][0]) / 1000 + burst
            assert total <= allowed + max(count - burst, 0) + 1e-6 * total


def test_no_limit_never_waits() -> None:
    limiter, clock = limited(None)
    assert times_ms(limiter, clock, [10**9] * 10) == [0] * 10
    assert limiter.rate is None


def test_nothing_to_store_is_free() -> None:
    limiter, _ = limited(0.001)
    assert limiter.try_acquire(0) == 0
    assert limiter.try_acquire(1) > 0


def test_a_higher_rate_shortens_a_debt_and_a_lower_one_does_not_lengthen_it() -> None:
    limiter, _ = limited(100.0)
    assert limiter.acquire(1000, threading.Event())  # a debt of 9.8 s
    limiter.set_rate(1000.0)
    assert limiter.try_acquire(1) == pytest.approx(980 + 1, abs=2)
    limiter.set_rate(10.0)
    assert limiter.try_acquire(1) == pytest.approx(980 + 100, abs=2)
    assert limiter.rate == 10.0


def test_from_unlimited_to_a_limit_nothing_is_saved_up() -> None:
    limiter, clock = limited(None)
    clock.advance(10_000)
    limiter.set_rate(1000.0)
    assert limiter.try_acquire(BLOCK_MS) == BLOCK_MS


@pytest.mark.parametrize("by_ms", [-900_000, 900_000])
def test_a_clock_that_is_set_neither_stops_the_receiver_nor_opens_it(by_ms: int) -> None:
    limiter, clock = limited(1000.0)
    assert times_ms(limiter, clock, [1000]) == [BLOCK_MS]
    clock.set_wall(by_ms)
    assert limiter.try_acquire(1) == 1000 - BLOCK_MS + 1


def test_what_may_not_be_stored_is_told_when_to_come_again() -> None:
    limiter, clock = limited(10.0)
    wait_ms = limiter.try_acquire(1)
    assert wait_ms == 100
    clock.advance(wait_ms - 1)
    assert limiter.try_acquire(1) == 1
    clock.advance(1)
    assert limiter.try_acquire(1) == 0


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_stop_ends_the_wait_and_charges_nothing(stopped: threading.Event) -> None:
    clock = ManualClock()
    limiter = RateLimiter(0.001, BLOCK_MS, clock)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(limiter.acquire(1, stopped)))
    thread.start()
    stopped.set()
    thread.join(WAIT_S)
    assert results == [False]
    clock.advance(1_000_000)
    assert limiter.try_acquire(1) == 0


def test_a_new_rate_reaches_a_thread_that_waits(stopped: threading.Event) -> None:
    clock = ManualClock()
    limiter = RateLimiter(0.001, BLOCK_MS, clock)
    clock.advance(BLOCK_MS)
    assert limiter.try_acquire(10) == 0  # a debt of hours
    thread = threading.Thread(target=limiter.acquire, args=(1, stopped))
    thread.start()
    assert eventually(lambda: limiter.try_acquire(1) == BLOCK_MS)  # it waits, and goes first
    limiter.set_rate(1000.0)

    def went() -> bool:
        clock.advance(BLOCK_MS)
        return not thread.is_alive()

    assert eventually(went)


def test_threads_keep_to_the_rate_together(stopped: threading.Event) -> None:
    clock = SystemClock()
    limiter = RateLimiter(2000.0, 50, clock)
    stored: list[int] = []

    def store() -> None:
        for _ in range(100):
            if limiter.acquire(1, stopped):
                stored.append(1)

    threads = [threading.Thread(target=store) for _ in range(4)]
    begun_ms = clock.time_ms()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    took_ms = clock.time_ms() - begun_ms
    assert len(stored) == 400
    assert took_ms >= 400 / 2000 * 1000 - 50


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf])
def test_wrong_rates_are_refused(rate: float) -> None:
    limiter, _ = limited(None)
    with pytest.raises(ConfigError, match="rate_records_per_s is"):
        limiter.set_rate(rate)
    with pytest.raises(ConfigError, match="rate_records_per_s is"):
        RateLimiter(rate)
    with pytest.raises(ConfigError, match="block_interval_ms is 0"):
        RateLimiter(1.0, 0)
    with pytest.raises(ConfigError, match="a store of -1 records"):
        limiter.try_acquire(-1)


@pytest.mark.parametrize("rate", [None, 1000.0])
def test_nothing_goes_through_while_it_is_paused(rate: float | None) -> None:
    limiter, clock = limited(rate)
    limiter.set_paused(True)
    assert limiter.try_acquire(1) == BLOCK_MS
    assert limiter.try_acquire(0) == 0
    clock.advance(60_000)
    assert limiter.try_acquire(1) == BLOCK_MS
    limiter.set_paused(False)
    assert limiter.try_acquire(1) == 0
    if rate is not None:  # a minute was not saved up
        assert limiter.try_acquire(BLOCK_MS - 1) == 0
        assert limiter.try_acquire(100) > 0


def test_a_thread_that_waits_feels_a_pause_and_its_end() -> None:
    limiter, stopped = RateLimiter(None, 10), threading.Event()
    limiter.set_paused(True)
    through = threading.Event()

    def store() -> None:
        if limiter.acquire(1, stopped):
            through.set()

    thread = threading.Thread(target=store)
    thread.start()
    assert not through.wait(0.05)
    limiter.set_paused(False)
    assert through.wait(WAIT_S)
    thread.join()


@pytest.mark.parametrize(
    ("rate", "records"), [(None, None), (0.1, 1), (5.0, 1), (1000.0, 200), (12_345.0, 2469)]
)
def test_a_burst_is_what_a_block_interval_holds(rate: float | None, records: int | None) -> None:
    assert limited(rate)[0].burst() == records


def test_stores_that_may_not_wait_do_not_refuse_each_other() -> None:
    limiter = RateLimiter(None, BLOCK_MS)
    refused: list[int] = []

    def store() -> None:
        refused.extend(filter(None, (limiter.try_acquire(1) for _ in range(2000))))

    threads = [threading.Thread(target=store) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []


def test_what_was_charged_and_not_stored_is_given_back() -> None:
    limiter, clock = limited(10.0)
    clock.advance(BLOCK_MS)  # the bucket fills
    assert limiter.try_acquire(2) == 0
    full_wait_ms = limiter.try_acquire(2)
    assert full_wait_ms == BLOCK_MS
    limiter.give_back(2)
    assert limiter.try_acquire(2) == 0
    assert limiter.try_acquire(2) == full_wait_ms
    unlimited, _ = limited(None)
    unlimited.give_back(5)
    assert unlimited.try_acquire(1000) == 0

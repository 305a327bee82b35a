"""Clients that are kept for the next task, and end when none comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from penstock.kafka import idle
from penstock.kafka.idle import IdleClients
from penstock.testing import ManualClock
from tests.waiting import eventually


def test_the_client_that_was_kept_last_is_taken() -> None:
    clients = IdleClients[str](lambda client: None)
    assert clients.take("a") is None
    for key, client in [("a", "first"), ("a", "second"), ("b", "other")]:
        clients.keep(key, client)
    assert [clients.take("a") for _ in range(3)] == ["second", "first", None]


def test_the_newest_ones_are_kept() -> None:
    ended: list[str] = []
    clients = IdleClients(ended.append, most=2)
    for client in "xyz":
        clients.keep(client, client)
    assert ended == ["x"]
    assert clients.take("x") is None
    assert clients.take("y") == "y"


def test_a_client_ends_if_no_task_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, before, ended = ManualClock(), {*threading.enumerate()}, list[str]()

    def sleep(seconds: float) -> None:
        clock.wait_until(clock.monotonic_ms() + round(1000 * seconds), threading.Event())

    def later(condition: Callable[[], bool]) -> bool:
        clock.advance(round(1000 * idle.KEPT_S))
        return condition()

    time = SimpleNamespace(monotonic=lambda: clock.monotonic_ms() / 1000, sleep=sleep)
    monkeypatch.setattr(idle, "time", time)
    clients = IdleClients(ended.append)
    clients.keep("a", "taken")
    clients.keep("b", "left")
    assert clients.take("a") == "taken"
    assert eventually(lambda: later(lambda: ended == ["left"]))
    assert eventually(lambda: not {*threading.enumerate()} - before)
    clients.keep("a", "taken")  # has the watch begin again
    assert eventually(lambda: later(lambda: ended == ["left", "taken"]))

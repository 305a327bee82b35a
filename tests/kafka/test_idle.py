"""Clients that are kept for the next task, and end when none comes."""

from __future__ import annotations

import threading

import pytest

from penstock.kafka import idle
from penstock.kafka.idle import IdleClients
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
    monkeypatch.setattr(idle, "KEPT_S", 0.1)
    before = {*threading.enumerate()}
    ended: list[str] = []
    clients = IdleClients(ended.append)
    clients.keep("a", "taken")
    clients.keep("b", "left")
    assert clients.take("a") == "taken"
    assert eventually(lambda: ended == ["left"])
    assert eventually(lambda: not {*threading.enumerate()} - before)
    clients.keep("a", "taken")  # has the watch begin again
    assert eventually(lambda: ended == ["left", "taken"])

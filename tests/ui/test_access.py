"""Who may ask: a table of requests."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.ui import DashboardSettings
from penstock.ui.access import Access

NAMES = frozenset({"localhost", "machine"})
OPEN = Access(own_names=NAMES)
CLOSED = Access(b"secret", ("streams.example.org",), own_names=NAMES)
BEARER = {"authorization": "Bearer secret"}
OWN = {"host": "127.0.0.1:4141", "origin": "http://127.0.0.1:4141"}


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("127.0.0.1:4141", "allowed"),
        ("[::1]:4141", "allowed"),
        ("LocalHost:4141", "allowed"),
        ("machine", "allowed"),
        ("10.0.0.7:4141", "allowed"),
        ("rebound.example.com:4141", "wrong_host"),
        ("127.0.0.1.example.com", "wrong_host"),
        ("streams.example.org", "wrong_host"),
        ("", "wrong_host"),
        ("127.0.0.1:80/signin?", "wrong_host"),
        ("localhost:80/static/style.css#", "wrong_host"),
        ("[::1]/signin?", "wrong_host"),
        ("user@localhost", "wrong_host"),
    ],
)
def test_only_addresses_and_known_names_are_answered(host: str, verdict: str) -> None:
    assert OPEN.decide("GET", {"host": host}, None) == verdict


def test_names_of_a_proxy_can_be_allowed() -> None:
    headers = {"host": "streams.example.org", **BEARER}
    assert CLOSED.decide("GET", headers, None) == "allowed"


@pytest.mark.parametrize(
    ("headers", "cookie", "verdict"),
    [
        ({}, None, "no_token"),
        (BEARER, None, "allowed"),
        ({"authorization": "Bearer other"}, None, "no_token"),
        ({"authorization": "secret"}, None, "no_token"),
        ({}, CLOSED.cookie, "allowed"),
        ({}, "secret", "no_token"),
        ({}, Access(b"other").cookie, "no_token"),
    ],
)
def test_with_a_token_everything_asks_for_it(
    headers: dict[str, str], cookie: str | None, verdict: str
) -> None:
    assert CLOSED.decide("GET", {"host": "localhost", **headers}, cookie) == verdict


@pytest.mark.parametrize(
    ("access", "headers", "cookie", "verdict"),
    [
        (OPEN, OWN, None, "read_only"),
        (CLOSED, OWN, CLOSED.cookie, "allowed"),
        (CLOSED, OWN, None, "no_token"),
        (CLOSED, {**OWN, "origin": "http://evil.example"}, CLOSED.cookie, "wrong_origin"),
        (CLOSED, {**OWN, "origin": "http://127.0.0.1:9"}, CLOSED.cookie, "wrong_origin"),
        (CLOSED, {**OWN, "origin": "null"}, CLOSED.cookie, "wrong_origin"),
        (CLOSED, {"host": "127.0.0.1:4141"}, CLOSED.cookie, "wrong_origin"),
        (CLOSED, {"host": "127.0.0.1:4141", **BEARER}, None, "allowed"),
        (CLOSED, {**OWN, "origin": "http://evil.example", **BEARER}, None, "wrong_origin"),
    ],
)
def test_a_change_comes_from_a_page_of_its_own_with_the_token(
    access: Access, headers: dict[str, str], cookie: str | None, verdict: str
) -> None:
    assert access.decide("POST", headers, cookie) == verdict


def test_other_hosts_need_a_token() -> None:
    with pytest.raises(ConfigError, match="no token"):
        DashboardSettings("0.0.0.0")
    with pytest.raises(ConfigError, match="no token"):
        DashboardSettings("::")
    DashboardSettings("0.0.0.0", token_file="token")

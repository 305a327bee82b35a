"""The answers over HTTP: what they carry, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.rate import RateOverride, RateOverrides
from penstock.storage import open_storage
from penstock.ui import Dashboard, DashboardSettings, start_dashboard
from tests.ui.world import Batches, program
from tests.waiting import WAIT_S


@pytest.fixture
def location(tmp_path: Path) -> Path:
    program(tmp_path / "p", Batches(6))
    return tmp_path / "p"


@pytest.fixture
def client(location: Path, tmp_path: Path) -> Iterator[httpx.Client]:
    """Of a dashboard without a token, about a program and a folder that is not a location."""
    (tmp_path / "empty").mkdir()
    yield from asking(location, tmp_path / "empty", settings=DashboardSettings(port=0))


@pytest.fixture
def guarded(location: Path, tmp_path: Path) -> Iterator[httpx.Client]:
    (tmp_path / "token").write_text("secret\n")
    token_file = str(tmp_path / "token")
    yield from asking(location, settings=DashboardSettings(port=0, token_file=token_file))


def asking(*paths: Path, settings: DashboardSettings) -> Iterator[httpx.Client]:
    served: Dashboard = start_dashboard([str(path) for path in paths], settings)
    with httpx.Client(base_url=served.url, timeout=WAIT_S) as client:
        yield client
    served.close()


def test_every_answer_binds_the_browser(client: httpx.Client) -> None:
    for path in ("/", "/0", "/static/page.js", "/nowhere", "/api/status"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_the_facts_may_have_any_text(tmp_path: Path) -> None:
    error = "half a character: \ud83d"
    program(tmp_path, Batches(6, failed=frozenset([4]), error=error))
    for client in asking(tmp_path, settings=DashboardSettings(port=0)):
        (found,) = client.get("/api/status").json()["locations"]
        assert error in {each["error"] for each in found["batches"]}


def test_nothing_is_loaded_from_elsewhere(client: httpx.Client) -> None:
    for path in ("/", "/static/page.js", "/static/style.css"):
        text = client.get(path).text
        assert "https://" not in text
        assert "http://" not in text.replace("http://127.0.0.1", "")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/0?batch=5", 200),
        ("/0?batch=6", 404),
        ("/0?batch=99999999999999999999999", 404),
        ("/0?batch=x", 404),
        ("/7", 404),
        pytest.param(f"/{5000 * '9'}", 404, id="more digits than int() takes"),
        ("/1", 503),
        ("/static/../app.py", 404),
        ("/static/%2e%2e%2fapp.py", 404),
        ("/0?last=9e99", 200),
        ("/0/nothing", 404),
    ],
)
def test_what_is_not_there_is_said(client: httpx.Client, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_a_location_that_cannot_be_read_hides_no_other(client: httpx.Client) -> None:
    text = client.get("/").text
    assert "this is neither a checkpoint location nor a journal" in text
    assert 'href="/0"' in text


def test_a_part_that_did_not_change_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/0?batch=2", headers={"X-Part": "main"})
    assert first.text.startswith("<div")
    again = {"X-Part": "main", "If-None-Match": first.headers["etag"]}
    assert client.get("/0?batch=2", headers=again).status_code in (200, 304)  # ages pass


def test_other_hosts_names_are_refused(client: httpx.Client) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_without_a_token_nothing_changes(client: httpx.Client, location: Path) -> None:
    form = {"stream": "clicks", "action": "pause"}
    origin = {"Origin": str(client.base_url).rstrip("/")}
    assert client.post("/0/rates", data=form, headers=origin).status_code == 403
    assert not RateOverrides(open_storage(location)).get("clicks").paused


def test_a_script_with_the_token(guarded: httpx.Client, location: Path) -> None:
    assert guarded.get("/api/status").status_code == 401
    assert guarded.get("/", headers={"Accept": "text/html"}).headers["location"] == "/signin"
    bearer = {"Authorization": "Bearer secret"}
    assert guarded.get("/api/status", headers=bearer).status_code == 200

    def change(**form: str) -> int:
        return guarded.post(
            "/0/rates", data={"stream": "clicks", **form}, headers=bearer
        ).status_code

    assert change(action="set", rate="250.5") == 303
    assert RateOverrides(open_storage(location)).get("clicks") == RateOverride(250.5)
    assert change(action="set", rate="fast") == 400
    assert change(action="set", rate="-1") == 400
    assert change(action="stop", rate="") == 400
    assert change(action="pause", stream="other") == 400
    assert change(action="default") == 303
    assert RateOverrides(open_storage(location)).get("clicks") == RateOverride()
    large = guarded.post("/0/rates", content=b"x" * 20_000, headers=bearer)
    assert large.status_code == 413


def test_a_change_is_shown_and_logged_as_it_was_made(
    guarded: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.ui")
    bearer = {"Authorization": "Bearer secret"}
    for form in ({"action": "set", "rate": "1234567.5"}, {"action": "pause", "rate": "\nforged"}):
        changed = guarded.post("/0/rates", data={"stream": "clicks", **form}, headers=bearer)
        assert changed.status_code == 303
    assert 'value="1234567.5"' in guarded.get("/0", headers=bearer).text
    assert not any("\n" in message for message in caplog.messages)


@pytest.mark.parametrize("end", ["/signin?", ":80/static/style.css#", ":80/signin?"])
def test_no_host_makes_a_page_one_that_needs_no_token(guarded: httpx.Client, end: str) -> None:
    host = f"127.0.0.1{end}"
    assert guarded.get("/api/status", headers={"Host": host}).status_code == 421
    own = {"Host": host, "Origin": f"http://{host}"}
    form = {"stream": "clicks", "action": "pause"}
    assert guarded.post("/0/rates", data=form, headers=own).status_code == 421


def test_a_form_of_another_site_is_refused(guarded: httpx.Client, location: Path) -> None:
    origin = {"Origin": str(guarded.base_url).rstrip("/")}
    signed_in = guarded.post("/signin", data={"token": "secret"}, headers=origin)
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert "secret" not in cookie
    form = {"stream": "clicks", "action": "pause"}
    evil = {"Origin": "http://evil.example"}
    assert guarded.post("/0/rates", data=form, headers=evil).status_code == 403
    assert guarded.post("/0/rates", data=form).status_code == 403
    assert not RateOverrides(open_storage(location)).get("clicks").paused
    assert guarded.post("/0/rates", data=form, headers=origin).status_code == 303
    assert RateOverrides(open_storage(location)).get("clicks").paused

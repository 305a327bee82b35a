"""Tokens, TLS, and what a constructor refuses."""

from __future__ import annotations

import pickle
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from penstock.errors import ConfigError
from penstock.receivers import HttpReceiver
from penstock.receivers.http.settings import read_token, tls_context
from tests.receivers.http_receiver.serving import TEXT, serving
from tests.waiting import WAIT_S

TOKEN = "s3cret-token"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


def test_requests_need_the_token_and_health_does_not(
    tmp_path: Path, token_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    receiver = HttpReceiver(port=0, token_file=token_file)
    with serving(tmp_path / "journal", receiver) as served:
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
            response = served.post(b"x", TEXT, **given)
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
        right = {"authorization": f"Bearer {TOKEN}", "origin": "https://page.example"}
        assert served.post(b"x", TEXT, **right).status_code == 200
        health = served.client.get("/healthz")
        assert health.status_code == 200
        assert served.records() == ["x"]
        assert TOKEN not in health.text + repr(receiver) + str(pickle.dumps(receiver))
    kept = [p.read_bytes() for p in (tmp_path / "journal").rglob("*") if p.is_file()]
    assert kept
    assert TOKEN.encode() not in b"".join(kept)
    assert TOKEN not in caplog.text


def test_tls_serves_those_who_trust_its_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    receiver = HttpReceiver(port=0, tls_certificate=str(certificate), tls_key=str(key))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with serving(tmp_path / "journal", receiver) as served:
        assert served.url.startswith("https://")
        with httpx.Client(base_url=served.url, verify=trusting, timeout=WAIT_S) as client:
            assert client.post("/", content=b"x\n" * 50_000, headers=TEXT).status_code == 200
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with httpx.Client(base_url=served.url, verify=old, timeout=WAIT_S) as client:
            assert client.get("/healthz").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(served.url, timeout=WAIT_S)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"host": "0.0.0.0"}, "token_file"),
        ({"host": "::"}, "token_file"),
        ({"host": "example.org"}, "token_file"),
        ({"host": ""}, "127.0.0.1"),
        ({"port": 65536}, "0 for any"),
        ({"port": "80"}, "0 for any"),
        ({"tls_certificate": "c.pem"}, "tls_key"),
        ({"max_body_bytes": 0}, "256 MiB"),
        ({"max_expanded_bytes": 1 << 30}, "256 MiB"),
        ({"idempotency_window_ms": 0}, "above 0"),
        ({"schema": "pickle"}, "schema 'pickle'"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint.replace(".", r"\.")):
        HttpReceiver(**arguments)


def test_loopback_needs_no_token_and_elsewhere_it_is_enough() -> None:
    for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1"):
        HttpReceiver(host)
    HttpReceiver("0.0.0.0", token_file="/run/token")


def test_receivers_are_imported_without_the_extra() -> None:
    program = (
        "import sys\n"
        "for name in ('uvicorn', 'httptools', 'uvloop', 'starlette'): sys.modules[name] = None\n"
        "import penstock.receivers\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_S)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock-spark\[http\]'"):
        HttpReceiver()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    with pytest.raises(ConfigError, match="empty"):
        read_token(str(empty))
    with pytest.raises(ConfigError, match="missing"):
        read_token(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="certificate"):
        tls_context(str(empty), str(empty))

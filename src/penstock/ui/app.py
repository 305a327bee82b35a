"""The routes of the dashboard. Pages are read and made in worker threads; nothing is kept.

``/``, ``/<location>`` and ``/<location>/journal`` are pages; with the header ``X-Part: main`` they
are only what changes, which the page's script puts in place. ``/api/status`` is the same as JSON.
What can be changed is what ``penstock rate`` can change, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import ConfigError, PenstockError
from penstock.metrics import Exporter
from penstock.rate import RateOverride
from penstock.status import LocationStatus, SharedStatus, health
from penstock.status.rate_facts import change_overrides, open_location, parse_rate
from penstock.ui import pages
from penstock.ui.access import Access, Verdict

_log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_COOKIE = "penstock"
_MOST_BODY = 16_384
_MOST_DIGITS = 18
"""Of a number in a URL: int() refuses thousands of them."""
_OPEN = ("/signin", "/static/style.css", "/static/page.js", "/static/icon.svg")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without one, browsers send forms with the origin "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_REFUSALS: dict[Verdict, tuple[int, str]] = {
    "wrong_host": (421, "This name is not one of the dashboard's (penstock ui --allow-host)."),
    "wrong_origin": (403, "The request comes from a page of another site."),
    "read_only": (403, "Without a token nothing can be changed (penstock ui --token-file)."),
    "no_token": (401, "A token is needed."),
}

Page = tuple[str, str, Mapping[str, Any]]
"""The name of its template, its title, and what it shows."""


class _Guard:
    """Answers what is allowed, and gives every answer the headers that a browser obeys."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            return
        refusal = self._refusal(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        cookie = request.cookies.get(_COOKIE)
        verdict = self._access.decide(request.method, request.headers, cookie)
        if verdict == "allowed" or (
            # Not request.url's, which is made of the Host header as well.
            request.scope["path"] in _OPEN and verdict in ("no_token", "read_only")
        ):
            return None
        status, text = _REFUSALS[verdict]
        if verdict == "no_token" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/signin", 303)
        return Response(text + "\n", status, media_type="text/plain")


def make_app(shared: SharedStatus, access: Access, exporter: Exporter | None) -> ASGIApp:
    """Return the application; without an exporter it has no /metrics."""
    dashboard = _Pages(shared, access)
    paths: dict[str, Callable[[Request], Page]] = {
        "/": dashboard.overview,
        "/{index}": dashboard.location,
        "/{index}/journal": dashboard.journal,
    }
    routes = [
        Route("/api/status", dashboard.status, methods=["GET"]),
        Route("/metrics", _metrics_of(exporter), methods=["GET"]),
        Route("/signin", dashboard.sign_in_form, methods=["GET"]),
        Route("/signin", dashboard.sign_in, methods=["POST"]),
        Route("/signout", dashboard.sign_out, methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
        Route("/{index}/rates", dashboard.change, methods=["POST"]),
        *(Route(path, _served(page, access), methods=["GET"]) for path, page in paths.items()),
    ]
    handlers: Any = {HTTPException: _failed, PenstockError: _failed}
    return _Guard(Starlette(routes=routes, exception_handlers=handlers), access)


def _metrics_of(exporter: Exporter | None) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if exporter is None:
            raise HTTPException(404, "prometheus-client is not installed: penstock-spark[metrics]")
        accepted = request.headers.get("accept", "")
        content_type, body = await run_in_threadpool(exporter.render, accepted)
        return Response(body, headers={"Content-Type": content_type})

    return endpoint


def _served(
    page: Callable[[Request], Page], access: Access
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        is_part = request.headers.get("x-part") == "main"
        text = await run_in_threadpool(made, request, is_part=is_part)
        if not is_part:
            return _html(text)
        etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        return _html(text, headers={"ETag": etag})

    def made(request: Request, *, is_part: bool) -> str:
        name, title, values = page(request)
        signed_in = access.token is not None
        return pages.render(name, title, values, part=is_part, signed_in=signed_in)

    return endpoint


def _html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers, media_type="text/html")


class _Pages:
    def __init__(self, shared: SharedStatus, access: Access) -> None:
        self._shared = shared
        self._access = access

    def overview(self, request: Request) -> Page:
        return "overview", "Overview", pages.overview(self._shared.all())

    def location(self, request: Request) -> Page:
        index, status = self._location(request)
        if status.kind == "journal":
            return self.journal(request)
        window, batch = request.query_params.get("last", ""), request.query_params.get("batch")
        windows = [each for each in pages.WINDOWS if str(each) == window]
        values = pages.program(
            index,
            status,
            windows[0] if windows else 200,
            None if batch is None else _number(batch),
            may_change=self._access.token is not None,
        )
        if values is None:
            raise HTTPException(404, f"batch {batch} is not among the newest that are kept")
        return "program", status.name, values

    def journal(self, request: Request) -> Page:
        index, status = self._location(request)
        return "journal", status.name, pages.journal(index, status)

    def status(self, request: Request) -> Response:
        found = [
            asdict(each)
            | ({"health": asdict(health(each))} if isinstance(each, LocationStatus) else {})
            for each in self._shared.all()
        ]
        # In ASCII, as texts of files may have characters that UTF-8 has not.
        return Response(json.dumps({"locations": found}), media_type="application/json")

    async def change(self, request: Request) -> Response:
        index = _number(request.path_params["index"])
        if index >= len(self._shared.paths):
            raise HTTPException(404, "there is no such location")
        form = await _form(request)
        path = self._shared.paths[index]
        arguments = (form.get("stream", ""), form.get("action", ""), form.get("rate", ""))
        await run_in_threadpool(_change_rate, path, *arguments)
        _log.info(
            "Rate of input %r of %s changed by the dashboard: %r %r",
            arguments[0],
            path,
            *arguments[1:],
        )
        return RedirectResponse(f"/{index}#rates", 303)

    async def sign_in_form(self, request: Request) -> Response:
        return _sign_in(failed=False)

    async def sign_in(self, request: Request) -> Response:
        form = await _form(request)
        if not self._access.is_token(form.get("token", "")):
            return _sign_in(failed=True)
        response = RedirectResponse("/", 303)
        secure = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            _COOKIE, self._access.cookie, httponly=True, samesite="strict", secure=secure
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        response = RedirectResponse("/signin", 303)
        response.delete_cookie(_COOKIE)
        return response

    def _location(self, request: Request) -> tuple[int, LocationStatus]:
        index = _number(request.path_params["index"])
        try:
            status = self._shared.get(index)
        except IndexError:
            raise HTTPException(404, "there is no such location") from None
        if not isinstance(status, LocationStatus):
            raise HTTPException(503, status.error)
        return index, status


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a small form, as browsers encode it without files."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            raise HTTPException(413, "the form is too large")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if f"/static/{name}" not in _OPEN:
        raise HTTPException(404, "there is no such file")
    return FileResponse(_STATIC / name)


async def _failed(request: Request, error: HTTPException | PenstockError) -> Response:
    status, text = 400, str(error)
    if isinstance(error, HTTPException):
        status, text = error.status_code, error.detail
    is_part = request.headers.get("x-part") == "main"
    page = pages.render("message", "Not here", {"text": text}, part=is_part, signed_in=False)
    return _html(page, status)


def _sign_in(*, failed: bool) -> Response:
    page = pages.render("signin", "Sign in", {"failed": failed}, part=False, signed_in=False)
    return _html(page, 401 if failed else 200)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise HTTPException(404, "there is no such page")
    return int(text)


def _change_rate(path: str, stream: str, action: str, rate: str) -> None:
    """Change the override of an input.

    Raises:
        ConfigError: there is no such input or action, or the rate is not a number above 0.
        StorageError: it could not be made durable.
    """

    def changed(override: RateOverride) -> RateOverride:
        if action == "set":
            return replace(override, max_rate=parse_rate(rate))
        if action == "default":
            return replace(override, max_rate=None)
        if action in ("pause", "resume"):
            return replace(override, paused=action == "pause")
        raise ConfigError(
            f"{action[:40]!r} is not an action on a rate",
            operation="change rate",
            hint="it is one of set, default, pause, resume",
        )

    change_overrides(open_location(path), stream, changed)

"""The routes of the dashboard. Pages are read and made in worker threads; nothing is kept.

``/`` and ``/<location>/<page>`` are pages; with the header ``X-Part: main`` they are only what
changes, which the page's script puts in place. ``/api/status`` is the same as JSON.
"""

from __future__ import annotations

import hashlib
import html as entities
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.metrics import Exporter
from penstock.status import LocationStatus, SharedStatus, health
from penstock.ui.access import Access, Verdict
from penstock.ui.control import change_rate
from penstock.ui.html import Html
from penstock.ui.pages.batches import WINDOWS, batch_page, batches_page
from penstock.ui.pages.checkpoint import checkpoint_page
from penstock.ui.pages.journal import journal_page
from penstock.ui.pages.layout import document
from penstock.ui.pages.overview import overview
from penstock.ui.pages.rates import rates_page
from penstock.ui.pages.receivers import receivers_page
from penstock.ui.pages.refusals import message_page, sign_in_page

_log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_COOKIE = "penstock"
_MOST_BODY = 16_384
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

Page = Callable[[Request], Html]


class _Number(IntegerConvertor):
    regex = "[0-9]{1,18}"  # int() refuses thousands of digits


register_url_convertor("penstock_number", _Number())


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
        verdict = self._access.decide(request.method, _plain(request.headers), cookie)
        if verdict == "allowed" or (
            # Not request.url's, which is made of the Host header as well.
            request.scope["path"] in _OPEN and verdict in ("no_token", "read_only")
        ):
            return None
        status, text = _REFUSALS[verdict]
        if verdict == "no_token" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/signin", 303)
        return Response(text + "\n", status, media_type="text/plain")


def _plain(headers: Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def make_app(shared: SharedStatus, access: Access, exporter: Exporter | None) -> ASGIApp:
    """Return the application; without an exporter it has no /metrics."""
    dashboard = _Pages(shared, access)
    pages: dict[str, Page] = {
        "/": dashboard.overview,
        "/{index:penstock_number}/batches": dashboard.batches,
        "/{index:penstock_number}/batches/{batch:penstock_number}": dashboard.batch,
        "/{index:penstock_number}/rates": dashboard.rates,
        "/{index:penstock_number}/receivers": dashboard.receivers,
        "/{index:penstock_number}/journal": dashboard.journal,
        "/{index:penstock_number}/checkpoint": dashboard.checkpoint,
    }
    routes = [Route(path, _served(page, access), methods=["GET"]) for path, page in pages.items()]
    routes += [
        Route("/api/status", dashboard.status, methods=["GET"]),
        Route("/metrics", _metrics_of(exporter), methods=["GET"]),
        Route("/{index:penstock_number}/rates", dashboard.change, methods=["POST"]),
        Route("/signin", dashboard.sign_in_form, methods=["GET"]),
        Route("/signin", dashboard.sign_in, methods=["POST"]),
        Route("/signout", dashboard.sign_out, methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
    ]
    handlers: Any = {HTTPException: _failed, PenstockError: _refused}
    return _Guard(Starlette(routes=routes, exception_handlers=handlers), access)


def _metrics_of(exporter: Exporter | None) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if exporter is None:
            raise HTTPException(404, "prometheus-client is not installed: penstock-spark[metrics]")
        accepted = request.headers.get("accept", "")
        content_type, body = await run_in_threadpool(exporter.render, accepted)
        return Response(body, headers={"Content-Type": content_type})

    return endpoint


def _served(page: Page, access: Access) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        main = await run_in_threadpool(page, request)
        if request.headers.get("x-part") != "main":
            signed_in = access.token is not None
            return _html(document(_title(main), main, signed_in=signed_in))
        etag = f'"{hashlib.sha256(main.encode()).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        return _html(main, headers={"ETag": etag})

    return endpoint


def _html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers, media_type="text/html")


def _title(main: Html) -> str:
    """Return the text of a page's heading."""
    return entities.unescape(main.partition("<h1>")[2].partition("</h1>")[0]) or "Dashboard"


class _Pages:
    def __init__(self, shared: SharedStatus, access: Access) -> None:
        self._shared = shared
        self._access = access

    def overview(self, request: Request) -> Html:
        return overview(self._shared.all())

    def batches(self, request: Request) -> Html:
        index, status = self._location(request)
        text = request.query_params.get("last", "")
        chosen = [each for each in WINDOWS if str(each) == text]
        return batches_page(index, status, chosen[0] if chosen else 200)

    def batch(self, request: Request) -> Html:
        index, status = self._location(request)
        batch_id = request.path_params["batch"]
        page = batch_page(index, status, batch_id)
        if page is None:
            raise HTTPException(404, f"batch {batch_id} is not among the newest that are kept")
        return page

    def rates(self, request: Request) -> Html:
        index, status = self._location(request)
        return rates_page(index, status, may_change=self._access.token is not None)

    def receivers(self, request: Request) -> Html:
        return receivers_page(*self._location(request))

    def journal(self, request: Request) -> Html:
        index, status = self._location(request)
        return journal_page(index, status, self._shared.letters(index))

    def checkpoint(self, request: Request) -> Html:
        index, status = self._location(request)
        validated = request.query_params.get("validate") == "1"
        checks = self._shared.checks(index, validated=validated)
        return checkpoint_page(index, status, checks, validated=validated)

    def status(self, request: Request) -> Response:
        found = [
            asdict(each)
            | ({"health": asdict(health(each))} if isinstance(each, LocationStatus) else {})
            for each in self._shared.all()
        ]
        # In ASCII, as texts of files may have characters that UTF-8 has not.
        return Response(json.dumps({"locations": found}), media_type="application/json")

    async def change(self, request: Request) -> Response:
        index = request.path_params["index"]
        if index >= len(self._shared.paths):
            raise HTTPException(404, "there is no such location")
        form = await _form(request)
        path = self._shared.paths[index]
        arguments = (form.get("stream", ""), form.get("action", ""), form.get("rate", ""))
        await run_in_threadpool(change_rate, path, *arguments)
        _log.info(
            "Rate of input %r of %s changed by the dashboard: %r %r",
            arguments[0],
            path,
            *arguments[1:],
        )
        return RedirectResponse(f"/{index}/rates", 303)

    async def sign_in_form(self, request: Request) -> Response:
        return _html(document("Sign in", sign_in_page(failed=False)))

    async def sign_in(self, request: Request) -> Response:
        form = await _form(request)
        if not self._access.is_token(form.get("token", "")):
            return _html(document("Sign in", sign_in_page(failed=True)), 401)
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
        index = request.path_params["index"]
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


async def _failed(request: Request, error: HTTPException) -> Response:
    return _message(request, error.status_code, error.detail)


async def _refused(request: Request, error: PenstockError) -> Response:
    return _message(request, 400, str(error))


def _message(request: Request, status: int, text: str) -> Response:
    page = message_page(text)
    return _html(
        page if request.headers.get("x-part") == "main" else document("Not here", page), status
    )

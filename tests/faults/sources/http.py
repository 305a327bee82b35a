"""HTTP clients that send each request again until it is acked, through a proxy that can be cut.

With an Idempotency-Key each record arrives exactly once. Without one, a request that reached a
server and was not answered may have been stored, so each of those allows its records once more.
"""

from __future__ import annotations

import http.client
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event

from tests.background import background
from tests.faults.proxy import Proxy
from tests.faults.sources.source import PAUSE_S, PLACES, Balance, ReceiverSpec, Source, exactly_once
from tests.free_port import free_port

_LINES_A_REQUEST = 20
_TIMEOUT_S = 5.0


class HttpSource(Source):
    def __init__(self) -> None:
        self._ports = {place: free_port() for place in PLACES}
        self._proxies = {place: Proxy(port) for place, port in self._ports.items()}
        self._clients = [
            _Client(f"{place}{number}", proxy.port, keyed=number == 0)
            for place, proxy in self._proxies.items()
            for number in range(2)
        ]

    def receiver(self, place: str) -> ReceiverSpec:
        port = self._ports[place]
        return ReceiverSpec("HttpReceiver", {"port": port}, ("http", "--port", str(port)))

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for proxy in self._proxies.values():
                stack.enter_context(proxy.running())
            yield

    @contextmanager
    def sending(self) -> Iterator[None]:
        with ExitStack() as stack:
            for client in self._clients:
                stack.enter_context(background(client.send))
            yield

    def cut(self) -> None:
        for proxy in self._proxies.values():
            proxy.cut()

    def balance(self, seen: Counter[str]) -> Balance:
        keyed = {client.name: client for client in self._clients if client.keyed}
        of_keyed = Counter({line: n for line, n in seen.items() if line.split(":")[0] in keyed})
        strict = exactly_once((line for c in keyed.values() for line in c.sent), of_keyed)
        if not strict.ok:
            return strict
        reached = sum(proxy.accepted for proxy in self._proxies.values())
        answered = sum(client.answers.total() for client in self._clients)
        may_twice = (reached - answered) * _LINES_A_REQUEST
        return exactly_once((line for c in self._clients for line in c.sent), seen, may_twice)


class _Client:
    """Sends one request after the other over one connection; all of them are acked in the end."""

    def __init__(self, name: str, port: int, keyed: bool) -> None:
        self.name = name
        self.keyed = keyed
        self.sent: list[str] = []
        self.answers: Counter[int] = Counter()
        self._port = port

    def __repr__(self) -> str:
        return f"client {self.name}, whose requests got the answers {self.answers}"

    def send(self, end: Event) -> None:
        for number in itertools.count():
            if end.wait(PAUSE_S):
                return
            self._deliver([f"{self.name}:{number}:{n}" for n in range(_LINES_A_REQUEST)])

    def _deliver(self, lines: list[str]) -> None:
        headers = {"Content-Type": "text/plain"}
        if self.keyed:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        body = "".join(f"{line}\n" for line in lines).encode()
        self.sent += lines
        while (status := self._try(body, headers)) is None or not 200 <= status < 300:
            assert status in (None, 429, 503), f"{self.name} was answered {status}"
            time.sleep(0.1)

    def _try(self, body: bytes, headers: dict[str, str]) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", "/", body, headers)
            response = connection.getresponse()
            response.read()
            self.answers[response.status] += 1
            return response.status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

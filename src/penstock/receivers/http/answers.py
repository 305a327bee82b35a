"""What a request is answered: where its records are, or why they were refused."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Placement(NamedTuple):
    """Where the records of a request are in the journal: ``[start, end)`` of one writer."""

    writer: str
    start: int
    end: int


class Answer(NamedTuple):
    """A response: status, headers beside Content-Type and Content-Length, and JSON text."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @staticmethod
    def stored(at: Placement) -> Answer:
        """Return the answer to a request whose records are durable."""
        # Formatted by hand: a writer's name needs no escapes, and this is each request's way.
        text = f'{{"writer":"{at.writer}","start":{at.start},"end":{at.end}}}'
        return Answer(200, (), text.encode())


class RefusedError(Exception):
    """Nothing of the request is stored, as far as is known; says why, and when to retry.

    Args:
        status: of the response.
        error: for people, without secrets.
        retry_after_s: when the same request may succeed, None if it will not.
        headers: further response headers.
        where: for example ``line=3``.
    """

    def __init__(
        self,
        status: int,
        error: str,
        *,
        retry_after_s: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        **where: Any,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.where = where

    def answer(self) -> Answer:
        """Return the response that says so."""
        headers = self.headers
        if self.retry_after_s is not None:
            headers = (*headers, (b"retry-after", b"%d" % self.retry_after_s))
        body = json.dumps({"error": str(self), **self.where}).encode()
        return Answer(self.status, headers, body)

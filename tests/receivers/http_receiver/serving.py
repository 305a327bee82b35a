"""A receiver behind a real socket, before a real journal, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.journal import CommitPolicy, JournalStream
from penstock.receivers import (
    Command,
    HttpReceiver,
    ReceiverSettings,
    Status,
    give_command,
    read_status,
)
from penstock.storage import Storage
from tests.journal.helpers import read_all
from tests.receivers.http_receiver.stream import open_stream
from tests.receivers.supervised import RUN, commanded
from tests.waiting import WAIT_S, eventually

__all__ = ["JSON", "NDJSON", "TEXT", "Served", "serving"]

NDJSON = {"content-type": "application/x-ndjson"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}


class Served:
    """A running receiver."""

    def __init__(self, stream: JournalStream, url: str, client: httpx.Client) -> None:
        self.stream = stream
        self.url = url
        self.client = client
        self.port = int(url.rpartition(":")[2])

    def post(self, content: Any, headers: dict[str, str] = TEXT, **more: str) -> httpx.Response:
        return self.client.post("/", content=content, headers={**headers, **more})

    def records(self) -> list[Any]:
        return read_all(self.stream)

    def command(self, **wanted: Any) -> None:
        give_command(self.stream, "r0", RUN, Command(**wanted))


@contextmanager
def serving(
    root: Path | Storage, receiver: HttpReceiver | None = None, **settings: Any
) -> Iterator[Served]:
    """Run a receiver (on a free port) under its supervisor, for the length of a block."""
    receiver = HttpReceiver(port=0) if receiver is None else receiver
    stream = open_stream(root, receiver.schema)
    timing = {"restart_delay_ms": 50, "poll_ms": 10, **settings}
    commit = CommitPolicy(block_interval_ms=50)
    earlier = read_status(stream, "r0")
    with commanded(stream, receiver, settings=ReceiverSettings(commit, **timing)) as failures:
        url = _listening_at(stream, earlier)
        with httpx.Client(base_url=url, timeout=WAIT_S, verify=False) as client:
            yield Served(stream, url, client)
    assert not failures, failures


def _listening_at(stream: JournalStream, earlier: Status | None) -> str:
    """Wait until a new writer's receiver says where it listens; return the URL."""
    found: list[str] = []

    def is_known() -> bool:
        status = read_status(stream, "r0")
        if status is not None and (earlier is None or status.writer != earlier.writer):
            found.extend(filter(None, [status.listening_at]))
        return bool(found)

    assert eventually(is_known), "the receiver did not start"
    return found[0]

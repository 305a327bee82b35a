"""A receiver behind a real socket, before a real journal, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.journal import CommitPolicy, JournalStream
from penstock.receivers import (
    HttpReceiver,
    Order,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    Status,
    read_status,
    write_order,
)
from penstock.storage import Storage
from tests.receivers.http_receiver.stream import journal_records, open_stream
from tests.waiting import eventually

__all__ = ["JSON", "NDJSON", "RUN", "TEXT", "Served", "serving"]

RUN = "run-1"
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
        return journal_records(self.stream)

    def order(self, **wanted: Any) -> None:
        write_order(self.stream, "r0", Order(RUN, **wanted))


@contextmanager
def serving(
    root: Path | Storage, receiver: HttpReceiver | None = None, **settings: Any
) -> Iterator[Served]:
    """Run a receiver (on a free port) under its supervisor, for the length of a block."""
    receiver = HttpReceiver(port=0) if receiver is None else receiver
    stream = open_stream(root, receiver.schema)
    write_order(stream, "r0", Order(RUN))
    timing = {"restart_delay_ms": 50, "poll_ms": 10, **settings}
    commit = CommitPolicy(block_interval_ms=50)
    task = ReceiverTask(receiver, stream, "r0", RUN, ReceiverSettings(commit, **timing))
    earlier = read_status(stream, "r0")
    failures: list[BaseException] = []
    supervisor = ReceiverSupervisor(task, lambda: 1)

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        url = _listening_at(stream, earlier)
        with httpx.Client(base_url=url, timeout=20, verify=False) as client:
            yield Served(stream, url, client)
    finally:
        write_order(stream, "r0", Order(RUN, stop=True))
        thread.join(20)
        assert not thread.is_alive(), "the receiver did not stop"
    assert not failures, failures


def _listening_at(stream: JournalStream, earlier: Status | None) -> str:
    """Wait until a new writer's receiver says where it listens; return the URL."""
    found: list[str] = []

    def is_known() -> bool:
        status = read_status(stream, "r0")
        if status is not None and (earlier is None or status.writer != earlier.writer):
            found.extend(filter(None, [status.listening_at]))
        return bool(found)

    assert eventually(is_known, 20), "the receiver did not start"
    return found[0]

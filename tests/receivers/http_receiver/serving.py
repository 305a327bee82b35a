"""A receiver behind a real socket, before a real journal, in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.journal import (
    CommitPolicy,
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    ranges_between,
    read_records,
)
from penstock.receivers import (
    HttpReceiver,
    Order,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    read_status,
    write_order,
)
from penstock.storage import Storage, open_storage
from tests.waiting import eventually

__all__ = ["Served", "journal_records", "open_stream", "serving"]

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


def open_stream(root: Path | Storage, schema: Any = "string") -> JournalStream:
    storage = open_storage(root) if isinstance(root, Path) else root
    return JournalStream.create(storage, "clicks", RecordFormat(schema))


def journal_records(stream: JournalStream) -> list[Any]:
    """Return all records that are durable, in the order of the epochs."""
    ends = advance({}, StreamProgress(stream).ends({}))
    return list(read_records(stream, ranges_between({}, ends)))


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
        with httpx.Client(base_url=listening_at(stream), timeout=20, verify=False) as client:
            yield Served(stream, listening_at(stream), client)
    finally:
        write_order(stream, "r0", Order(RUN, stop=True))
        thread.join(20)
        assert not thread.is_alive(), "the receiver did not stop"
    assert not failures, failures


def listening_at(stream: JournalStream) -> str:
    """Wait until the receiver says where it listens; return the URL."""
    found: list[str] = []

    def is_known() -> bool:
        status = read_status(stream, "r0")
        if status is not None and status.run == RUN and status.listening_at is not None:
            found.append(status.listening_at)
        return bool(found)

    assert eventually(is_known, 20), "the receiver did not start"
    return found[0]


def body_of(response: httpx.Response) -> Any:
    return json.loads(response.content)

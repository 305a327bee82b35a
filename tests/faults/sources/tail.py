"""Log files that grow and rotate. They have positions: each line arrives exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.ledger import LogWriter
from tests.faults.sources.source import PAUSE_S, PLACES, Balance, ReceiverSpec, Source, exactly_once


class TailSource(Source):
    has_connections = False

    def __init__(self, root: Path) -> None:
        self._folders = {place: root / f"logs-{place}" for place in PLACES}
        for folder in self._folders.values():
            folder.mkdir()
        self._writers = {
            place: LogWriter(folder, prefix=f"{place} line ")
            for place, folder in self._folders.items()
        }

    def receiver(self, place: str) -> ReceiverSpec:
        path = str(self._folders[place] / "app.log*")
        return ReceiverSpec("TailReceiver", {"paths": path}, ("tail", path))

    @contextmanager
    def sending(self) -> Iterator[None]:
        with ExitStack() as stack:
            for writer in self._writers.values():
                stack.enter_context(writer.running(pause_s=PAUSE_S))
            yield

    def cut(self) -> None:
        raise NotImplementedError("a file has no connections; but it rotates all the time")

    def balance(self, seen: Counter[str]) -> Balance:
        return exactly_once(
            (line for writer in self._writers.values() for line in writer.lines()), seen
        )

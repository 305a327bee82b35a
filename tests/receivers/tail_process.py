"""Runs a TailReceiver until its process is killed; its host stands in for the journal.

``group`` stores share one file, as a group commit has it, so a kill also loses what was stored and
not yet durable. A file holds the lines and the position after them, and appears by one rename.
The receiver's own files are in a folder beside them.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.receivers import TailReceiver
from penstock.receivers.own_files import StoredFiles
from penstock.receivers.tail import positions
from penstock.storage.local import LocalStorage


class FileHost:
    """Publishes stores as files 00000000.json and on."""

    def __init__(self, directory: Path, group: int) -> None:
        self._directory = directory
        self._group = group
        self._waiting: list[str] = []
        self._stores = 0
        lives = len(list(self._directory.glob("life-*")))
        (self._directory / f"life-{lives}").touch()
        self._writer = f"r0-{lives:08d}"

    def store(self, records: Any, position: Any, ack: Callable[[], None] | None) -> None:
        self._waiting += records.column(0).to_pylist()
        position.place(self._writer, 0, 0)
        self._stores += 1
        if self._stores % self._group:
            return
        name = f"{len(list(self._directory.glob('*.json'))):08d}.json"
        temporary = self._directory / "unpublished"
        temporary.write_text(json.dumps({"lines": self._waiting, "position": position.value()}))
        temporary.rename(self._directory / name)
        self._waiting = []

    def own_files(self) -> StoredFiles:
        return StoredFiles(LocalStorage(str(self._directory)), "own")

    def last_position(self) -> Any:
        published = sorted(self._directory.glob("*.json"))
        return json.loads(published[-1].read_text())["position"] if published else None

    def report_error(self, message: str, error: BaseException | None) -> None:
        print(message, error or "", file=sys.stderr, flush=True)

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        self.report_error(f"restart: {message}", error)

    def stop(self, message: str, error: BaseException | None) -> None:
        self.report_error(f"stop: {message}", error)

    def is_stopped(self) -> bool:
        return False


def follow(store_dir: str, group: int, *patterns: str) -> None:
    positions.FEW_MARKS = 2  # so that copies are written and deleted all the time
    receiver = TailReceiver(patterns, poll_interval_ms=5)
    receiver.attach(FileHost(Path(store_dir), group))
    receiver.onStart()
    signal.pause()

"""Receivers of topics as ``penstock ingest kafka`` runs them, in processes that can be struck."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from penstock.cli.ingest.options import IngestOptions
from penstock.cli.ingest.process import run_ingest
from penstock.journal import Bounds
from penstock.receivers import KafkaReceiver
from tests.forked import FORKS
from tests.waiting import WAIT_S, eventually

HASTY = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "group.id": "readers"}
"""A member that is killed or sleeps leaves its group soon."""


class Receiving:
    """One process; what it logs is appended to ``<folder>/<name>.log``."""

    def __init__(self, folder: Path, name: str, topics: list[str], conf: dict[str, Any]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._earlier = self._starts()
        arguments = (str(folder / "journal"), name, topics, conf, str(self.log))
        self._process: BaseProcess = FORKS.Process(target=_receive, args=arguments)
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(WAIT_S)

    def sleep(self) -> None:
        """Stop it, once it receives: before that, it may wake as the later run of its name."""
        self._wait_receiving()
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def drain(self) -> int | None:
        """End it as a service manager does, once it receives; return its exit status."""
        self._wait_receiving()
        self._signal(signal.SIGTERM)
        self._process.join(WAIT_S)
        return self._process.exitcode

    def _wait_receiving(self) -> None:
        assert eventually(lambda: self._starts() > self._earlier), self.log.read_text()

    def _starts(self) -> int:
        return self.log.read_text().count(" receives: ") if self.log.exists() else 0

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        with suppress(ProcessLookupError):  # the exit status tells why
            os.kill(self._process.pid, number)


def _receive(journal: str, name: str, topics: list[str], conf: dict[str, Any], log: str) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    receiver = KafkaReceiver(topics, conf, "earliest")
    run_ingest(receiver, IngestOptions(journal, "s", name, Bounds(), "block", "none"))

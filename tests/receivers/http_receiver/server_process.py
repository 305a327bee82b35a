"""A receiver in a process of its own, which prints its URL, until it is killed."""

from __future__ import annotations

import sys
import uuid

from penstock.journal import CommitPolicy
from penstock.receivers import (
    Command,
    HttpReceiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    claim_run,
)
from penstock.receivers.http import key_window
from tests.receivers.http_receiver.stream import open_stream


class Announced(HttpReceiver):
    """Says where it listens."""

    def onStart(self) -> None:
        super().onStart()
        print(self.listeningAt, flush=True)


def main(root: str) -> None:
    """Serve until killed."""
    key_window.FILE_KEYS = 32
    stream = open_stream(root)
    run = claim_run(stream, "r0", uuid.uuid4().hex, Command())
    settings = ReceiverSettings(CommitPolicy(), restart_delay_ms=50)
    ReceiverSupervisor(ReceiverTask(Announced(port=0), stream, "r0", run, settings)).run()


if __name__ == "__main__":
    main(sys.argv[1])

"""The program that test_recovery_sequence kills: records of an AckingSource into a folder.

    python acking_program.py CHECKPOINT PORT SINK

Writes each batch's records to SINK/<batch time>. While there is a file SINK/hang, it hangs in a
batch with records, and its receiver keeps those that begin with "late" without storing them.
Says on standard output what happens.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.receivers.threaded import ThreadedReceiver
from penstock.streaming import StreamingContext
from tests.driver_program import new_context, run_until_told, say


class AckingReceiver(ThreadedReceiver):
    """Answers each line of the source once it is durable."""

    def __init__(self, port: int, hang: Path) -> None:
        self.port = port
        self.hang = hang

    def receive(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            server.settimeout(0.1)
            rest = b""
            while not self.shallEnd():
                try:
                    data = server.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    raise ConnectionError("the source hung up")
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if not (line.startswith(b"late") and self.hang.exists()):
                        self.store(line.decode(), ack=partial(server.sendall, line + b"\n"))


def save(sink: Path) -> Callable[[Any, Any], None]:
    def save_records(time: Any, rdd: Any) -> None:
        records = rdd.collect()
        time_ms = round(time.timestamp() * 1000)
        if records and (sink / "hang").exists():
            say("hanging", time_ms)
            threading.Event().wait()
        if records:
            (sink / str(time_ms)).write_text("".join(f"{record}\n" for record in records))

    return save_records


def create(port: int, sink: Path) -> StreamingContext:
    say("created")
    ssc = new_context()
    receiver = AckingReceiver(port, sink / "hang")
    ssc.receiverStream(receiver, name="orders").foreachRDD(save(sink))
    return ssc


def main(checkpoint: str, port: str, sink: str) -> None:
    ssc = StreamingContext.getOrCreate(checkpoint, partial(create, int(port), Path(sink)))
    say("made")
    run_until_told(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One receiver's source: goes on from the durable position, writes down what is acked."""

from __future__ import annotations

import os

from penstock.journal import CommitPolicy, JournalStream, JournalWriter, RecordFormat
from penstock.storage import open_storage


def replay(root: str, count: int, acked: str) -> None:
    """Store ``count`` numbers, one block each, and close."""
    told = os.open(acked, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stream = JournalStream.create(open_storage(root), "lines", RecordFormat("string"))
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0))
    start = writer.position or 0
    for number in range(start, start + count):
        line = f"{number}\n".encode()
        writer.append(str(number), position=number + 1, ack=lambda line=line: os.write(told, line))
        writer.flush()
    writer.close()

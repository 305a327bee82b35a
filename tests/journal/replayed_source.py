"""A process with one receiver's source: goes on from the durable position, prints what is acked.

Run as ``python -m tests.journal.replayed_source ROOT COUNT``; tests kill it anywhere.
"""

from __future__ import annotations

import os
import sys

from penstock.journal import CommitPolicy, JournalStream, JournalWriter, RecordFormat
from penstock.storage import open_storage


def main(root: str, count: int) -> None:
    """Store ``count`` numbers, one block each, and close."""
    stream = JournalStream.create(open_storage(root), "lines", RecordFormat("string"))
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0))
    start = writer.position or 0
    for number in range(start, start + count):
        line = f"{number}\n".encode()
        writer.append(str(number), position=number + 1, ack=lambda line=line: os.write(1, line))
        writer.flush()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""How many records a location's sources hold that no batch has taken, where they can be reached.

That is a penstock program's own journal. What other sources hold only they know.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.offsets import streams_of
from penstock.errors import PenstockError
from penstock.journal import JournalStream, stream_names
from penstock.journal.lag import records_behind
from penstock.storage import attach_storage

JOURNAL = "journal"
"""The folder of a program's journal in its checkpoint location."""


def read_lag(checkpoint: Checkpoint, newest: Batch) -> dict[str, int]:
    """Return the records behind the newest batch, by source and stream; reads a footer a writer.

    A stream that cannot be read is left out: `penstock journal verify` says why.
    """
    return dict(_read(checkpoint, newest))


def _read(checkpoint: Checkpoint, newest: Batch) -> Iterator[tuple[str, int]]:
    journal = attach_storage(f"{checkpoint.url}/{JOURNAL}").without_sync()
    ends = {source: streams_of(end) or {} for source, end in newest.end_offsets.items()}
    known = stream_names(journal) if any(ends.values()) else []
    for source, streams in ends.items():
        for name, taken in streams.items():
            if name not in known:
                continue
            try:
                stream = JournalStream.open(journal, name)
                footers = {writer: stream.newest(writer) for writer in stream.writers()}
            except PenstockError:
                continue
            held = {w: footer.end_offset if footer else 0 for w, footer in footers.items()}
            yield f"{source} {name}", records_behind(held, taken)

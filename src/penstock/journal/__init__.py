"""The write-ahead journal: a partitioned log of immutable Parquet blocks.

``JournalWriter`` writes (group commit, fencing), ``read_batches`` and ``read_records`` read any
offset range, ``penstock.journal.spark`` reads it on Spark, ``retire`` deletes blocks that every
consumer has passed. ``JournalSource`` reads a stream in batches for one consumer. The format is
described byte for byte in docs/journal-format.md.
"""

from penstock.journal.bounds.amounts import Amount, Bounds
from penstock.journal.bounds.quota import WriterQuota
from penstock.journal.description import stream_names
from penstock.journal.offsets import WriterEnd, advance, ranges_between
from penstock.journal.positions import DeferredPosition
from penstock.journal.progress import StreamProgress
from penstock.journal.reader import read_batches
from penstock.journal.record_reader import read_records
from penstock.journal.retention.consumer_files import (
    commit_consumer,
    consumers,
)
from penstock.journal.retention.notices import remove_consumer
from penstock.journal.retention.registration import Consumer, register_consumer
from penstock.journal.retention.retirement import retire
from penstock.journal.schema import RecordFormat
from penstock.journal.source import JournalSource
from penstock.journal.stream import JournalStream
from penstock.journal.verify import Verdict, verify_stream
from penstock.journal.writer import JournalWriter
from penstock.journal.writer.commit_policy import CommitPolicy

__all__ = [
    "Amount",
    "Bounds",
    "CommitPolicy",
    "Consumer",
    "DeferredPosition",
    "JournalSource",
    "JournalStream",
    "JournalWriter",
    "RecordFormat",
    "StreamProgress",
    "Verdict",
    "WriterEnd",
    "WriterQuota",
    "advance",
    "commit_consumer",
    "consumers",
    "ranges_between",
    "read_batches",
    "read_records",
    "register_consumer",
    "remove_consumer",
    "retire",
    "stream_names",
    "verify_stream",
]

"""The journal's writer: group commit of many stores into few durable blocks.

    JournalWriter.append      stores, from any thread
        │
    StoreBuffer               takes what has room; fills a group; closes it when CommitPolicy says
        │ Group
    encoding thread           Parquet, while the block before it is being synced
        │ EncodedGroup
    publishing thread         one exclusive, durable create after the other; then the acks

``journal_writer`` is the public class: opening, the checks of what is stored, sealing. ``buffer``
is the monitor that all threads meet in, ``publisher`` the two threads, ``commit_policy`` the pure
decision of when to publish, ``errors`` how a writer ends.

Prior art: Spark's BatchedWriteAheadLog and BlockGenerator; the accumulator and sender of Kafka's
producer; group commit as databases do it.
"""

from penstock.journal.writer.journal_writer import JournalWriter

__all__ = ["JournalWriter"]

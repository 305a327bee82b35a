"""The journal's writer: group commit of many stores into few durable blocks.

    JournalWriter.append      stores, from any thread
        │
    StoreBuffer               accepts stores; fills a group; closes it when CommitPolicy decides
        │ Group
    encoding thread           Parquet, while the block before it is being synced
        │ EncodedGroup
    publishing thread         one exclusive, durable create after the other; then the acks

``journal_writer`` is the public class: opening, the checks of stored data, sealing. ``buffer`` is
the monitor that all threads share, ``publisher`` the two threads, ``commit_policy`` the pure
decision of when to publish, ``errors`` the errors that end a writer.

Prior art: Spark's BatchedWriteAheadLog and BlockGenerator; the accumulator and sender of Kafka's
producer; group commit in databases.
"""

from penstock.journal.writer.journal_writer import JournalWriter

__all__ = ["JournalWriter"]

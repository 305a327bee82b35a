"""The sink: records of a batch to topics, at least once, or exactly once by transactions.

    records      what is sent, from a program's records          pure
    tokens       what the brokers remember of a batch             pure
    failures     why it writes no more, as errors                 pure
    producer     a producer and the first record that failed
    transactions one transactional id and its token
    partition    a partition of a batch                           in executors
    batches      a batch: its attempt, and what an earlier one left   on the driver

``partition`` has the protocol and its invariants. Nothing here uses Spark: ``penstock.kafka.spark``
does.
"""

from penstock.kafka.sink.batches import Attempt, SinkBatches
from penstock.kafka.sink.partition import Destination, send_partition, write_partition
from penstock.kafka.sink.producer import check_sink_settings, check_sink_topic, sink_conf
from penstock.kafka.sink.records import Encoder, Headers, Outgoing, to_headers

__all__ = [
    "Attempt",
    "Destination",
    "Encoder",
    "Headers",
    "Outgoing",
    "SinkBatches",
    "check_sink_settings",
    "check_sink_topic",
    "send_partition",
    "sink_conf",
    "to_headers",
    "write_partition",
]

"""Batches of Kafka topics with checkpoints in files: the functions of streamz, run on Spark.

from penstock.batched import from_kafka_batched

layout       the files under a checkpoint path                       pure
in_flight    which ranges are being worked on                        pure
checkpoints  the protocol, and its invariants
operations   what streams do with elements; graph: in which order    pure
messages     reads a range, where its functions run
sources      what the next batch takes
jobs         a batch on Spark
program      the loop
stream       what programs are made of
"""

from penstock.batched.messages import get_message_batch
from penstock.batched.stream import Stream, from_kafka_batched

__all__ = ["Stream", "from_kafka_batched", "get_message_batch"]

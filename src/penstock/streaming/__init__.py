"""DStreams with a durable journal: drop-in for ``pyspark.streaming``.

from penstock.streaming import StreamingContext
"""

from penstock.streaming.context import StreamingContext
from penstock.streaming.dstream import DStream
from penstock.streaming.events import (
    BatchInfo,
    OutputOperationInfo,
    ReceiverInfo,
    StreamInputInfo,
)
from penstock.streaming.listener import StreamingListener

__all__ = [
    "BatchInfo",
    "DStream",
    "OutputOperationInfo",
    "ReceiverInfo",
    "StreamInputInfo",
    "StreamingContext",
    "StreamingListener",
]

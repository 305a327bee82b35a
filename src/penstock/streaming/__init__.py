"""DStreams with a durable journal: drop-in for ``pyspark.streaming``.

from penstock.streaming import StreamingContext
"""

from penstock.streaming.context import StreamingContext
from penstock.streaming.dstream import DStream
from penstock.streaming.listener import BatchInfo, StreamingListener

__all__ = ["BatchInfo", "DStream", "StreamingContext", "StreamingListener"]

"""DStreams with a durable journal: drop-in for ``pyspark.streaming``.

from penstock.streaming import StreamingContext
"""

from penstock.state import State
from penstock.streaming.context import StreamingContext
from penstock.streaming.dstream import DStream
from penstock.streaming.listener import BatchInfo, StreamingListener
from penstock.streaming.state_spec import StateSpec

__all__ = ["BatchInfo", "DStream", "State", "StateSpec", "StreamingContext", "StreamingListener"]

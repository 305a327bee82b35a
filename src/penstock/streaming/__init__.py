"""DStreams with a durable journal: drop-in for ``pyspark.streaming``.

from penstock.streaming import StreamingContext
"""

from penstock.state import State
from penstock.streaming.batch import SourceRange
from penstock.streaming.constant_input import ConstantInputDStream
from penstock.streaming.context import StreamingContext
from penstock.streaming.dstream import DStream
from penstock.streaming.events import (
    BatchInfo,
    OutputOperationInfo,
    ReceiverInfo,
    StreamInputInfo,
)
from penstock.streaming.inputs import InputDStream
from penstock.streaming.journal_input import JournalInputDStream
from penstock.streaming.listener import StreamingListener
from penstock.streaming.receiver_input import ReceiverInputDStream
from penstock.streaming.state_spec import StateSpec

__all__ = [
    "BatchInfo",
    "ConstantInputDStream",
    "DStream",
    "InputDStream",
    "JournalInputDStream",
    "OutputOperationInfo",
    "ReceiverInfo",
    "ReceiverInputDStream",
    "SourceRange",
    "State",
    "StateSpec",
    "StreamInputInfo",
    "StreamingContext",
    "StreamingListener",
]

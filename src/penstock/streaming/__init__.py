"""DStreams with a durable journal: drop-in for ``pyspark.streaming``.

from penstock.streaming import StreamingContext
"""

from penstock.model import OutputBatch
from penstock.streaming.context import StreamingContext
from penstock.streaming.core.batch import SourceRange
from penstock.streaming.core.events import (
    BatchInfo,
    OutputOperationInfo,
    ReceiverInfo,
    StreamInputInfo,
)
from penstock.streaming.core.listener import StreamingListener
from penstock.streaming.inputs.constant_input import ConstantInputDStream
from penstock.streaming.inputs.input import InputDStream
from penstock.streaming.inputs.journal_input import JournalInputDStream
from penstock.streaming.inputs.receiver_input import ReceiverInputDStream
from penstock.streaming.operations.dstream import DStream

__all__ = [
    "BatchInfo",
    "ConstantInputDStream",
    "DStream",
    "InputDStream",
    "JournalInputDStream",
    "OutputBatch",
    "OutputOperationInfo",
    "ReceiverInfo",
    "ReceiverInputDStream",
    "SourceRange",
    "StreamInputInfo",
    "StreamingContext",
    "StreamingListener",
]

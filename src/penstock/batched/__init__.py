"""Batches of Kafka topics with checkpoints in files: the functions of streamz, run on Spark.

from penstock.batched import from_kafka_batched

layout       the files under a checkpoint path                       pure
in_flight    which ranges are being worked on                        pure
checkpoints  the protocol, and its invariants
operations   what streams do with elements; graph: in which order    pure
to_kafka     the sink
messages     reads a range, where its functions run
sources      what the next batch takes
jobs         a batch on Spark
program      the loop
stream       what programs are made of
streamz      the same streams in streamz' event loop; on_dask: on Dask
inspection   what a path shows
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.batched.messages import get_message_batch
    from penstock.batched.stream import Stream, from_kafka_batched

__all__ = ["Stream", "from_kafka_batched", "get_message_batch"]

_MODULES = {"Stream": "stream", "from_kafka_batched": "stream", "get_message_batch": "messages"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: tasks and tools take other modules, and need no Spark."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

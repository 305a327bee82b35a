"""Structured Streaming over journals and over Kafka.

    from penstock.structured import register

    register(spark)
    spark.readStream.format("penstock").option("journal", url).option("stream", name)...

session           what the driver tells the processes in which sources run      plain values
options           the options of a source: their names, types and defaults      pure
planner           what a source does to plan its batches: the contract
admission         how far a batch goes                                          pure
stream_reader     Spark's stream reader over a planner
private_folder    the folder by which the driver and the readers talk
rate_files        the way of a rate from the driver to a reader
running_query     what Spark's Python API does not tell of a query
query_rates       learns from a query's progress, keeps what it learned
listener          between Spark's events and these two
journal/          the source over a journal
registration      makes the sources known to a Spark session
receivers         receivers in the session's executors
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.structured.journal.ranges import scan
    from penstock.structured.receivers import ReceiverStatus, RunningReceivers, start_receivers
    from penstock.structured.registration import register

__all__ = [
    "ReceiverStatus",
    "RunningReceivers",
    "register",
    "scan",
    "start_receivers",
]

_MODULES = {
    "ReceiverStatus": "receivers",
    "RunningReceivers": "receivers",
    "register": "registration",
    "scan": "journal.ranges",
    "start_receivers": "receivers",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: executors take other modules, and import little."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

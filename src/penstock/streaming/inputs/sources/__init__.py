"""The methods that create streams; same names and meaning as in ``pyspark.streaming``.

``pushed``: inputs over a journal, through receivers or written by another program.
``pulled``: inputs that each batch fetches, files and queues. ``combined``: operations on several
streams. All are parts of StreamingContext, whose other parts they only know as ``ContextPart``.
"""

from penstock.streaming.inputs.sources.combined import CombinedStreams
from penstock.streaming.inputs.sources.pulled import PulledStreams
from penstock.streaming.inputs.sources.pushed import PushedStreams

__all__ = ["StreamSources"]


class StreamSources(PushedStreams, PulledStreams, CombinedStreams):
    """The part of a StreamingContext that makes streams."""

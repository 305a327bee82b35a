"""What a program makes its streams with; same names and meaning as in ``pyspark.streaming``.

``pushed``: inputs that a journal stands behind, through receivers or written by somebody else.
``pulled``: inputs that each batch fetches, files and queues. ``combined``: operations on several
streams. All are parts of StreamingContext, whose other parts they only know as ``ContextPart``.
"""

from penstock.streaming.inputs.sources.combined import CombinedStreams
from penstock.streaming.inputs.sources.pulled import PulledStreams
from penstock.streaming.inputs.sources.pushed import PushedStreams

__all__ = ["StreamSources"]


class StreamSources(PushedStreams, PulledStreams, CombinedStreams):
    """The part of a StreamingContext that makes streams."""

"""The methods that create streams; same names and meaning as in ``pyspark.streaming``.

``pushed``: inputs over a journal, through receivers or written by another program.
``pulled``: inputs that each batch fetches, files and queues. ``combined``: operations on several
streams. All are parts of StreamingContext.
"""

from penstock.streaming.inputs.sources.pulled import PulledStreams
from penstock.streaming.inputs.sources.pushed import PushedStreams


class StreamSources(PushedStreams, PulledStreams):
    """The part of a StreamingContext that makes streams."""

"""How far back batches reach: what inputs must keep, for this run and for a restart. Pure.

A window reaches back by its width, a stateful stream to the RDD checkpoint that it is made again
from, and what they are made of reaches as far, up to the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.streaming.core.base import BaseDStream

__all__ = ["needed_after"]


def needed_after(streams: Iterable[BaseDStream], done_ms: int) -> dict[BaseDStream, int]:
    """Return, for each stream, the time after which its RDDs may be asked for.

    Args:
        streams: all streams of a graph, each before its parents.
        done_ms: batches up to that time are committed; it is what a stream gets that nothing looks
            back to.
    """
    needed: dict[BaseDStream, int] = {}
    for stream in streams:
        after_ms = min(needed.get(stream, done_ms), stream.needed_after(done_ms))
        needed[stream] = after_ms
        for parent in stream.parents:
            of_parent_ms = stream.parents_needed_after(after_ms, done_ms)
            needed[parent] = min(needed.get(parent, done_ms), of_parent_ms)
    return needed

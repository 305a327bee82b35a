"""Retention of RDDs: the data that inputs must keep, for this run and for a restart. Pure.

A window needs its width, a stateful stream needs everything since the RDD checkpoint from which it
is recomputed, and their parents need the same, up to the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.streaming.core.base import BaseDStream


def needed_after(streams: Iterable[BaseDStream], done_ms: int) -> dict[BaseDStream, int]:
    """Return, for each stream, the time after which its RDDs may be needed.

    Args:
        streams: all streams of a graph, each before its parents.
        done_ms: batches up to that time are committed; the result for a stream whose earlier RDDs
            nothing needs.
    """
    needed: dict[BaseDStream, int] = {}
    for stream in streams:
        after_ms = min(needed.get(stream, done_ms), stream.needed_after(done_ms))
        needed[stream] = after_ms
        for parent in stream.parents:
            of_parent_ms = stream.parents_needed_after(after_ms, done_ms)
            needed[parent] = min(needed.get(parent, done_ms), of_parent_ms)
    return needed

"""Which ticks that passed without a batch need one, whatever made them pass. Pure.

A downtime does, a clock that jumped, a process that was stopped, and batches that take longer than
the interval.

A window ends at each of its slides, whether or not a driver runs then. So that each record is in
every window that its batch's time puts it in, the batches of slide ends that passed are made
later, if their windows hold records:

    batches      1  2  3  |  killed                            |  16
    ticks        1  2  3  |  4  5  6  7  8  9 10 11 12 13 14 15|  16
    window(4, 2)    x     |  x     x                           |   x     ends with a batch

- A window that holds no record has no batch, so a long downtime makes no more batches than records
  before it (and files in it) have windows.
- A window with an inverse function has one more: the first that is empty, whose keys say so.
- A stream that keeps state has records where its parent has.
- A queue of one RDD for each tick has its next ones at the first ticks that passed.
- What a window looks at has a batch of its own where it has records, since windows hold records by
  their batches' times.

The batches that are made depend on the logs and on what inputs find, not on what was made before:
a driver that is killed meanwhile goes on with the rest of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.streaming.core.base import BaseDStream

__all__ = ["missed_ticks"]


def missed_ticks(
    streams: Sequence[BaseDStream],
    taken: Mapping[BaseDStream, Collection[int]],
    passed: range,
) -> list[int]:
    """Return which of the ticks ``passed`` need a batch, in order.

    Args:
        streams: all streams of a graph, each before its parents.
        taken: for each input, the times of batches that take records of it: those that were made
            and that windows may reach back to, and ticks that passed.
        passed: the ticks without batches, at least one.
    """
    times: dict[BaseDStream, Sequence[int]] = {}
    for stream in reversed(streams):
        own = {*taken.get(stream, ()), *(t for parent in stream.parents for t in times[parent])}
        times[stream] = stream.times_with_records(sorted(own), passed[-1])
    windowed: set[BaseDStream] = set()  # what needs them, and what that is made of
    for stream in streams:
        if stream.needs_missed_ticks or stream in windowed:
            windowed.update((stream, *stream.parents))
    needed = {time_ms for stream in windowed for time_ms in times[stream]}
    return sorted(t for t in needed if t in passed)

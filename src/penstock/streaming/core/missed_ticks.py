"""Which ticks that passed without a batch need one, whatever made them pass. Pure.

A downtime does, a clock that jumped, a process that was stopped, and batches that take longer than
the interval.

A window ends at each of its slides, whether or not a driver is running. So that each record is in
every window of its batch's time, the batches of missed slide ends are run later, if their windows
hold records:

    batches      1  2  3  |  killed                            |  16
    ticks        1  2  3  |  4  5  6  7  8  9 10 11 12 13 14 15|  16
    window(4, 2)    x     |  x     x                           |   x     ends with a batch

- A window without records has no batch, so a long downtime creates no more batches than the records
  before it (and the files during it) have windows.
- A window with an inverse function has one more: the first empty one, in which its keys change.
- A stream that keeps state has records where its parent has.
- A parent of a window has its own batch where it has records, since windows hold records by their
  batches' times.

These batches depend on the logs and on the inputs' data, not on earlier batches of this kind: a
driver that is killed meanwhile continues with the rest of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.streaming.core.base import BaseDStream


def ticks_needed(
    streams: Sequence[BaseDStream],
    taken: Mapping[BaseDStream, Collection[int]],
    passed: range,
) -> list[int]:
    """Return which of the ticks ``passed`` need a batch, in order.

    Args:
        streams: all streams of a graph, each before its parents.
        taken: for each input, the times of batches that take its records: existing batches that
            windows may need, and missed ticks.
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

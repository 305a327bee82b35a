"""A receiver under load for minutes: memory, descriptors and files stay flat, or this fails.

A program on local[3] counts lines of a socket, batch by batch, at a steady 100,000 lines/s. Each
second the resident memory and the open descriptors of the receiver's worker, of the driver's Python
and of its JVM are looked at, and the files under the checkpoint location (journal, logs, control).
A line is fitted to what came after the first third; what rises by more than its allowance grows.

The JVM's heap is bounded by -Xmx and filled as it likes: its memory is shown and not judged.
"""

from __future__ import annotations

import argparse
import sys

from harness import Metric, Options, Series, fresh_process, parse_options, report, text_server

_LINES_PER_S = 100_000
_START_S = 60
"""How long the program may take beside the sampling."""


def main() -> None:
    """Run the program, judge what it saw."""
    options = parse_options(__doc__, _add_seconds)
    seconds = _seconds(options)
    with text_server(_LINES_PER_S, seconds + _START_S) as server:
        found = fresh_process(
            "_memory_program.py", server.port, seconds, timeout_s=seconds + 2 * _START_S
        )
    series = [Series(**values) for values in found["series"]]
    for one in series:
        allowed = "" if one.allowance is None else f", allowed {one.allowance:g}"
        print(
            f"  {one.name}: mean {one.mean:.1f} {one.unit}, rises by {one.growth:+.1f} "
            f"in {one.times_s[-1] - one.times_s[0]:.0f} s{allowed}{': GROWS' if one.grows else ''}"
        )
    print(f"  {found['records']:,} records counted, {found['batches']} batches")
    metrics = [_metric(one) for one in series]
    report("memory", metrics, as_json=options.json)
    if any(one.grows for one in series):
        sys.exit(1)


def _add_seconds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, help="how long (default 180, with --quick 30)")


def _seconds(options: Options) -> int:
    return int(options.extra.seconds or (30 if options.quick else 180))


def _metric(series: Series) -> Metric:
    """Compare the mean with the mean and what it grew by: 1 is flat."""
    grown = series.mean + max(series.growth, 0.0)
    target = None
    if series.allowance is not None:
        target = round(series.mean / (series.mean + series.allowance), 3)
    name = f"{series.name}, grown to mean"
    return Metric(name, series.unit, grown, series.mean, target, less_is_better=True)


if __name__ == "__main__":
    main()

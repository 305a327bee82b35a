"""format("penstock") against Spark's own Parquet reader over the same blocks, and its planning.

Log lines in blocks of about 16 MB, read into a no-op sink, in one process and in turns:

parquet   spark.read.parquet(the block files)
records   readStream.format("penstock"): records through Arrow and the Python workers
ranges    the native lane: the stream carries ranges, scan() reads their blocks

Of the streams the time of a batch is taken from Spark's trigger to its end: planning, logs and all.

Planning: the latest offset and the tasks of a batch over 10,000 blocks, as the process beside the
driver does it, against 100 ms; and again after 10,000 batches of the query (2,000 and 200 with
--quick).

HTTP: POSTs of one line and of a hundred (100 bytes each), acked when they are durable, to a query
that counts them with a trigger of 1 s, end to end: through the journal and the native lane, and
through a Starlette application, Kafka (acks=all) and Spark's own source. One machine has it all.

Back pressure: the scenarios of backpressure.py, with their job, for queries with a trigger of 1 s:
one with ``fit``, and one with the static maxOffsetsPerTrigger that fills 90% of the interval, what
Spark takes of it included. A query leaves out the ticks that pass while a batch runs, so its delay
is the time that passed without a batch for each interval. --quick leaves this part out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from backpressure import INTERVAL_MS, LEAST_PEAK_S, Run, Scenario, figures_of, scenarios
from harness import Metric, fresh_process, in_turns, parse_options, report
from harness.kafka_broker import connector_jars

from penstock.rate import RateDecision

_TARGETS = {"records": 0.45, "ranges": 0.8}
_PLANNING_MS = 100.0
_HTTP = 5.0
_FLAT = 0.8
"""A median of some plans varies by so much."""
_STATIC = 15_000
"""40 us a line and 50 ms a batch leave 0.25 s of 0.9 s for Spark's own work."""


def main() -> None:
    """Run all parts."""
    options = parse_options(__doc__, _add_arguments)
    metrics: list[Metric] = []
    left_out = {"backpressure"} if options.quick else set()
    wanted = {options.extra.only} if options.extra.only else _PARTS.keys() - left_out
    for name, run in _PARTS.items():
        if name in wanted:
            metrics += run(options.quick)
    report("structured", metrics, as_json=options.json)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=_PARTS, help="run this part only")


def _reading(quick: bool) -> list[Metric]:
    lines, rounds = (500_000, 1) if quick else (6_000_000, 5)
    found = fresh_process("_structured_program.py", "read", lines, rounds, timeout_s=900)
    for side, rate in found.items():
        print(f"  {side}: {rate:,.0f} records/s", flush=True)
    return [
        Metric(f"{side}, to Parquet", "records/s", found[side], found["parquet"], target)
        for side, target in _TARGETS.items()
    ]


def _planning(quick: bool) -> list[Metric]:
    blocks, batches = (2_000, 200) if quick else (10_000, 10_000)
    found = fresh_process("_structured_program.py", "plan", blocks, batches, timeout_s=900)
    name = f"planning a batch over {blocks:,} blocks"
    new, used = found["cpu_ms"], found["used_cpu_ms"]
    return [
        Metric(name, "ms", found["plan_ms"], _PLANNING_MS, 1.0, less_is_better=True),
        Metric(f"after {batches:,} batches, to before", "ms of a core", used, new, _FLAT, True),
    ]


def _http(quick: bool) -> list[Metric]:
    seconds, rounds = (4, 1) if quick else (10, 3)

    def rate(engine: str, lines: int) -> float:
        found = fresh_process("_http_query_program.py", engine, lines, seconds, timeout_s=600)
        return float(found["rate"])

    metrics = []
    for lines in (100,) if quick else (1, 100):
        engines = ["penstock", "kafka"] if connector_jars() else ["penstock"]
        sides = {f"{lines} a request, {each}": partial(rate, each, lines) for each in engines}
        ours, *peer = in_turns(sides, rounds, "lines/s").values()
        name = f"HTTP to a count, {lines} a request, to Kafka's way"
        metrics.append(Metric(name, "lines/s", ours, peer[0] if peer else None, _HTTP))
    return metrics


def _back_pressure(quick: bool) -> list[Metric]:
    metrics: list[Metric] = []
    for name, scenario in scenarios(quick).items():
        figures = {}
        for system in ("fit", _STATIC):
            figures[system] = figures_of(scenario, _run(system, scenario))
            print(f"  {name}, {system}: {figures[system]}", flush=True)
        ours, static = figures["fit"], figures[_STATIC]
        peaks = [max(each.peak_s, LEAST_PEAK_S) for each in (ours, static)]
        target = 2.0 if peaks[1] > 2 * LEAST_PEAK_S else 1.0
        kept = float(ours.lost + static.lost == 0)
        metrics += [
            Metric(f"{name}: peak delay, fit to static", "s", *peaks, target, True),
            Metric(f"{name}: kept lines (1 is all)", "", kept, 1.0, 1.0),
        ]
        if scenario.full_until_s > scenario.step_s:
            longest = 1 + ours.overshoot
            metrics.append(
                Metric(f"{name}: longest batch, fit to 1.1", "s", longest, 1.1, 1.0, True)
            )
    return metrics


def _run(system: str | int, scenario: Scenario) -> Run:
    steps = [f"{at}:{rate}" for at, rate in scenario.load]
    found = fresh_process(
        "_query_backpressure_program.py",
        *(system, scenario.backlog, scenario.seconds, scenario.slow_from_s, *steps),
        timeout_s=scenario.seconds + 180,
    )
    batches = [RateDecision(*batch) for batch in found["batches"]]
    begin_ms = found["begin_ms"]
    late = _with_delays(batches, begin_ms + 1000 * scenario.step_s)
    return Run(begin_ms, found["end_ms"], late, found["lost"])


def _with_delays(batches: list[RateDecision], step_ms: float) -> list[RateDecision]:
    """Return batches with their delays since the step."""
    begins = [batch.time_ms - batch.processing_delay_ms for batch in batches]
    measured = [begin for begin in begins if begin >= step_ms]
    late = [begin - measured[0] - place * INTERVAL_MS for place, begin in enumerate(measured)]
    before = [0] * (len(batches) - len(measured))
    return [
        replace(batch, scheduling_delay_ms=max(0, delay))
        for batch, delay in zip(batches, [*before, *late], strict=True)
    ]


_PARTS: dict[str, Callable[[bool], list[Metric]]] = {
    "reading": _reading,
    "planning": _planning,
    "http": _http,
    "backpressure": _back_pressure,
}


if __name__ == "__main__":
    main()

"""Back pressure at work: penstock's estimators against pyspark.streaming's, batch by batch.

One job over one source, a TCP server that keeps what is not read. A batch takes 50 ms and 40 us a
line, of which most is sleep, so that the cores are not what is measured: 1 s holds about 20,000
lines. Each run is a fresh process, local[3], batches of 1 s, back pressure on, no other settings.

spike      4,000 lines/s, for a while ten times that, and 4,000 again
slowdown   30,000 lines/s; after a while the job costs four times as much
backlog    5 million lines wait at the start
trickle    10 lines/s

Of each run: the longest that a batch was late (peak delay; below 0.2 s counts as 0.2 s), after how
many batches it was stable, by how much the longest batch after the fifth exceeds the interval, how
much of the interval batches took then, and how many lines were lost. What is measured begins with
the scenario's step (for the backlog that is the start, cold as it is), without empty batches.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from harness import Metric, fresh_process, load_server, parse_options, report
from harness.rate_measures import (
    batches_until_stable,
    overshoot,
    peak_scheduling_delay_ms,
    utilisation,
)

from penstock.rate import RateDecision

INTERVAL_MS = 1000
SYSTEMS = ("fit", "pid", "peer")
_QUICK_SYSTEMS = ("fit", "peer")
_SETTLED = 5
"""Batches after a step within which an estimator shall be stable."""
LEAST_PEAK_S = 0.2
"""A delay below is the machine's noise."""


@dataclass(frozen=True)
class Scenario:
    """A load, and when to look. Times in seconds: from the connection, or where the job changes
    from its start.
    """

    seconds: float
    load: Sequence[tuple[float, float]]
    step_s: float
    """What is measured begins here ..."""
    full_until_s: float
    """... and there is more to do than can be done up to here; before ``step_s``: never."""
    backlog: int = 0
    slow_from_s: float = 0


def scenarios(quick: bool) -> dict[str, Scenario]:
    """Return the loads by name; with ``quick`` a short one alone."""
    t = 7.0 if quick else 60.0  # two batches after the step has settled
    spike = [(0.0, 4_000.0), (t, 40_000.0), (2 * t, 4_000.0)]
    short = {"spike": Scenario(3 * t, spike, t, 2 * t)}
    if quick:
        return short
    return {
        **short,
        "slowdown": Scenario(2 * t, [(0.0, 30_000.0)], t, 2 * t, slow_from_s=t),
        "backlog": Scenario(1.5 * t, [(0.0, 0.0)], 0, 1.5 * t, backlog=5_000_000),
        "trickle": Scenario(t, [(0.0, 10.0)], 0.3 * t, 0),
    }


@dataclass(frozen=True)
class Figures:
    """What came of one run."""

    peak_s: float
    stable_after: int
    overshoot: float
    utilisation: float
    lost: int

    def __str__(self) -> str:
        return (
            f"peak delay {self.peak_s:.1f} s, stable after {self.stable_after} batches, "
            f"then overshoot {self.overshoot:.0%}, utilisation {self.utilisation:.0%}; "
            f"lost {self.lost}"
        )


def main() -> None:
    """Run every scenario on every system."""
    options = parse_options(__doc__, _add_arguments)
    metrics: list[Metric] = []
    for name, scenario in scenarios(options.quick).items():
        if options.extra.only not in (None, name):
            continue
        figures = {}
        for system in _QUICK_SYSTEMS if options.quick else SYSTEMS:
            figures[system] = figures_of(scenario, _run(system, scenario))
            print(f"  {name}, {system}: {figures[system]}", flush=True)
        metrics += _metrics(name, scenario, figures)
    report("backpressure", metrics, as_json=options.json)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="SCENARIO", help="run this one only")


@dataclass(frozen=True)
class Run:
    """What a program printed. ``begin_ms`` is when the scenario's time began."""

    begin_ms: int
    end_ms: int
    batches: list[RateDecision]
    lost: int


def _run(system: str, scenario: Scenario) -> Run:
    with load_server(scenario.backlog, scenario.load) as server:
        found = fresh_process(
            "_backpressure_program.py",
            *(system, server.port, scenario.seconds, scenario.slow_from_s),
            timeout_s=scenario.seconds + 120,
        )
        begin_ms = found["begin_ms"] if scenario.slow_from_s else server.connected_ms()
    batches = [RateDecision(*batch) for batch in found["batches"]]
    return Run(begin_ms, found["end_ms"], batches, found["lost"])


def figures_of(scenario: Scenario, run: Run) -> Figures:
    """Return what came of a run."""

    def since_begin_s(batch: RateDecision) -> float:
        return (_due_ms(batch) - run.begin_ms) / 1000

    loaded = [b for b in run.batches if b.num_elements]
    measured = [b for b in loaded if since_begin_s(b) >= scenario.step_s]
    full = [b for b in measured if since_begin_s(b) < scenario.full_until_s]
    return Figures(
        max(peak_scheduling_delay_ms(measured), _still_late_ms(run)) / 1000,
        batches_until_stable(full, INTERVAL_MS),
        overshoot(full[_SETTLED:], INTERVAL_MS),
        utilisation(full[_SETTLED:], INTERVAL_MS),
        run.lost,
    )


def _due_ms(batch: RateDecision) -> int:
    return batch.time_ms - batch.processing_delay_ms - batch.scheduling_delay_ms


def _still_late_ms(run: Run) -> int:
    """Return how late a batch is at least that has not begun when the run ends.

    The one after the last that ended may run; the one after that has not begun.
    """
    last_ms = max(map(_due_ms, run.batches), default=run.begin_ms)
    return max(run.end_ms - last_ms - 2 * INTERVAL_MS, 0)


def _metrics(name: str, scenario: Scenario, figures: dict[str, Figures]) -> list[Metric]:
    """Return the comparisons; targets without a peer are compared with what is wanted."""
    peaks = {system: max(f.peak_s, LEAST_PEAK_S) for system, f in figures.items()}
    peer = peaks.pop("peer")
    targets = {"pid": 1.0, "fit": 2.0 if peer > 2 * LEAST_PEAK_S else 1.0}
    found = [
        Metric(f"{name}: peak delay, {system}", "s", peak, peer, targets[system], True)
        for system, peak in peaks.items()
    ]
    kept = float(all(figures[system].lost == 0 for system in peaks))
    found.append(Metric(f"{name}: kept lines (1 is all)", "", kept, 1.0, 1.0))
    if scenario.full_until_s > scenario.step_s:
        fit = figures["fit"]
        stable = max(fit.stable_after, 1)
        found += [
            Metric(f"{name}: batches to stable, fit to 5", "", stable, 5.0, 1.0, True),
            Metric(f"{name}: longest batch, fit to 1.1", "s", 1 + fit.overshoot, 1.1, 1.0, True),
            Metric(f"{name}: utilisation, fit to 0.85", "", fit.utilisation, 0.85, 1.0),
        ]
    return found


if __name__ == "__main__":
    main()

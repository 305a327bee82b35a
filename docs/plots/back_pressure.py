"""Draws the plots of docs/back-pressure.md from simulated runs, as SVG beside this file.

From the repository's root: PYTHONPATH=src:. .venv/bin/python docs/plots/back_pressure.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl

from penstock.rate import FitRateEstimator, PIDRateEstimator
from tests.rate.scenarios import INTERVAL_MS, MINUTE_MS, SCRIPTED, UNBOUNDED_RATE, peer
from tests.rate.simulator import Engine, Scenario, SimulatedBatch, piecewise, simulate

mpl.use("svg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
NOISE = 0.03


@dataclass(frozen=True)
class Line:
    """One estimator in one engine."""

    label: str
    color: str
    estimator: type[FitRateEstimator | PIDRateEstimator]
    engine: Engine
    style: str = "-"

    def run(self, scenario: Scenario) -> list[SimulatedBatch]:
        """Run it; Spark's engine does not bound its first batch."""
        scenario = peer(scenario) if self.engine == "queue" else scenario
        return simulate(self.estimator(INTERVAL_MS), scenario, self.engine)


FIT = Line("penstock, fit", "#1b7837", FitRateEstimator, "journal")
PID = Line("penstock, pid", "#2166ac", PIDRateEstimator, "journal", "--")
SPARK = Line("Spark, pid", "#b2182b", PIDRateEstimator, "queue", ":")


def draw(name: str, scenario: Scenario, lines: Sequence[Line]) -> None:
    """Draw limit, batch time and delay over time, one line for each estimator."""
    figure, (rates, times, delays) = plt.subplots(3, 1, sharex=True, figsize=(7, 5.5))
    for line in lines:
        batches = [batch.decision for batch in line.run(replace(scenario, noise=NOISE))]
        ends_s = [batch.time_ms / 1000 for batch in batches]
        look = {"color": line.color, "linestyle": line.style, "linewidth": 1.3}
        limits = [b.rate if b.rate < UNBOUNDED_RATE else math.nan for b in batches]
        rates.step(ends_s, limits, where="post", label=line.label, **look)
        times.step(ends_s, [b.processing_delay_ms / 1000 for b in batches], **look)
        delays.step(ends_s, [b.scheduling_delay_ms / 1000 for b in batches], **look)
    rates.set_yscale("log")
    rates.set_ylabel("limit, records/s")
    rates.legend(loc="best", fontsize=8, frameon=False)
    times.axhline(INTERVAL_MS / 1000, color="grey", linewidth=0.6)
    times.set_ylabel("batch time, s")
    delays.set_ylabel("scheduling delay, s")
    delays.set_ylim(bottom=0)
    delays.set_xlabel("s")
    delays.set_xlim(0, scenario.duration_ms / 1000)
    for axes in (rates, times, delays):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = FOLDER / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    lines_of_file = path.read_text().splitlines()
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines_of_file))


def main() -> None:
    """Draw all of them; the same files each time."""
    mpl.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.size": 9})
    after_quiet = replace(
        SCRIPTED["trickle"],
        arrivals=piecewise((0, 4000.0), (20_000, 10.0), (MINUTE_MS, 4000.0)),
        duration_ms=80_000,
    )
    draw("slowdown", SCRIPTED["slowdown"], (SPARK, PID, FIT))
    draw("backlog", SCRIPTED["backlog"], (SPARK, PID, FIT))
    draw("spike", SCRIPTED["spike"], (SPARK, PID, FIT))
    draw("quiet", after_quiet, (PID, FIT))


if __name__ == "__main__":
    main()

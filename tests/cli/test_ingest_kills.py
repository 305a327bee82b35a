"""SIGKILL at each file call of an ingest process's start-up and drain, one after the other.

One journal lives through all of it. Each process takes over from the one killed before, goes on
from the durable position, stores a few more records, and drains. So the journal must hold exactly
0 .. n-1, with every number that was acked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.ingest.options import IngestOptions, WhenFullOption
from penstock.cli.ingest.process import run_ingest
from penstock.journal import Bounds
from tests.ingest_process import Counting, records
from tests.strace import kill_points, needs_strace, traced

pytestmark = [pytest.mark.slow, needs_strace]

STEP = 5
CHANGES = re.compile(r"(link|unlink|rename|mkdir|fsync)\(|openat\(.*O_CREAT")


def prepare(journal: str, acks: str) -> Callable[[], object]:
    """Get a life ready that stores ``STEP`` records more than there are."""
    place = Path(journal)
    count = len(records(place)) if (place / "s" / "stream.json").exists() else 0
    bounds = Bounds(max_bytes=64 << 20)
    options = IngestOptions(journal, "s", "ingest", bounds, WhenFullOption.block, "none")
    return lambda: run_ingest(Counting(count + STEP, acks), options)


@pytest.mark.storm
def test_nothing_is_lost_or_doubled_by_kills_in_start_up_and_drain(tmp_path: Path) -> None:
    journal, acks = tmp_path / "journal", tmp_path / "acks"
    arguments = (str(journal), str(acks))
    acks.touch()
    assert traced(prepare, arguments, tmp_path / "first") == 0  # the folders are there from now on
    points = kill_points(prepare, arguments, tmp_path / "log", CHANGES)
    killed = 0
    for point in points:
        killed += traced(prepare, arguments, tmp_path / "log", point) != 0
        held = list(map(int, records(journal)))
        assert held == list(range(len(held))), point
        acked = list(map(int, acks.read_text().split()))
        assert len(acked) == len(set(acked)), point
        assert set(acked) <= set(held), point
    assert killed >= 0.8 * len(points)
    assert traced(prepare, arguments, tmp_path / "log") == 0

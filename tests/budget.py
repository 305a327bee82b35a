"""Sums up which folders of tests a run's time went to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest


def seconds_by_folder(reports: Iterable[pytest.TestReport]) -> list[tuple[str, float]]:
    """Return the folders right below ``tests``, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        path = PurePosixPath(report.nodeid.partition("::")[0])
        seconds["/".join(path.parent.parts[:2])] += report.duration
    return sorted(seconds.items(), key=lambda item: -item[1])

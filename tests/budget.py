"""Sums up what a run's time went to: the folders of tests, and the workers that shared them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import pytest


def seconds_by(
    key: Callable[[pytest.TestReport], str], reports: Iterable[pytest.TestReport]
) -> list[tuple[str, float]]:
    """Return the seconds of the tests with each key, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        seconds[key(report)] += report.duration
    return sorted(seconds.items(), key=lambda item: -item[1])


def folder_of(report: pytest.TestReport) -> str:
    """Return the folder right below ``tests``."""
    path = PurePosixPath(report.nodeid.partition("::")[0])
    return "/".join(path.parent.parts[:2])


def worker_of(report: pytest.TestReport) -> str:
    """Return the worker of pytest-xdist that ran it."""
    node = getattr(report, "node", None)
    return "this process" if node is None else f"worker {node.gateway.id}"

"""A pytest plugin: prints failures when they happen, what a run's time went to, and a report.

The report (``--report FILE``) is what ``scripts/gate.py`` judges a run by.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="the file of the run's report")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # not a worker of pytest-xdist
        config.pluginmanager.register(Report(config), "penstock-report")


class Report:
    """What became of each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: set[str] = set()
        self._failed: dict[str, dict[str, Any]] = {}
        self._skipped: dict[str, str] = {}
        self._crashed: list[str] = []
        self._reports: list[pytest.TestReport] = []

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        found = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, pytest.TerminalReporter)
        return found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)
        test = own_id(report.nodeid)
        if report.failed:
            self._failed[test] = {
                "durability": "durability" in report.keywords,
                "text": f"{report.longreprtext}\n{report.capstdout}\n{report.capstderr}",
            }
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{report.when} of {test} failed:")
            self._terminal.write_line(self._failed[test]["text"], flush=True)
        elif report.skipped:
            reason = report.longrepr
            self._skipped[test] = reason[2] if isinstance(reason, tuple) else str(reason)
        elif report.when == "call":
            self._passed.add(test)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # its tests do not run
            self._crashed.append(f"{report.nodeid}: {report.longreprtext}")
        elif report.skipped:
            reason = report.longrepr
            self._skipped[report.nodeid] = reason[2] if isinstance(reason, tuple) else str(reason)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        self._crashed.append(crashitem)

    def pytest_sessionfinish(self) -> None:
        if (file := self._config.getoption("report")) is not None:
            said = {
                "passed": len(self._passed - self._failed.keys()),
                "failed": self._failed,
                "skipped": self._skipped,
                "crashed": self._crashed,
                "seconds": dict(seconds_by(lambda each: own_id(each.nodeid), self._reports)),
            }
            file.write_text(json.dumps(said))
        self._config.option.tbstyle = "no"  # each failure has been printed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds")
        for key in (worker_of, folder_of):
            for name, seconds in seconds_by(key, self._reports):
                terminalreporter.line(f"| {name} | {seconds:.0f} |")
        terminalreporter.line(f"| all | {sum(report.duration for report in self._reports):.0f} |")


def own_id(nodeid: str) -> str:
    """Return a test's id without the group that pytest-xdist appends (``@hdfs``)."""
    return re.sub(r"@[^@\]]+$", "", nodeid)


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

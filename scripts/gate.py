"""The gate, which is `make test`: checks and programs, every test once, and a report.

A run is green when each step is, and no test was skipped but those of `EXPECTED_SKIPS`. Up to
`MOST_RETRIED` failed tests are each run once more, alone in a new process: one that passes then is
printed as FLAKY, with both outputs and the load, and has to be repaired in the next commit. Tests
marked `durability` are never run a second time: a record that is lost in one of fifty runs looks
exactly like that. A worker that crashes makes the run red.

Exit codes: 10 set-up (in the Makefile), 11 programs, 12 checks, 13 tests.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAMS, CHECKS, TESTS = 11, 12, 13
MOST_RETRIED = 3
EXPECTED_SKIPS = ("tests/cli/test_doctor.py::test_path_without_write_permission_is_an_error",)
"""How the ids of tests begin that may be skipped on a machine that has everything: root may write
anywhere."""
_VERSIONS = {
    "Java": ["java", "-version"],
    "Chromium": ["chromium", "--version"],
    "PostgreSQL": ["psql", "--version"],
    "mosquitto": ["mosquitto", "-h"],
    "strace": ["strace", "--version"],
    "Prometheus": ["promtool", "--version"],
}
_PYTEST = [sys.executable, "-m", "pytest"]
_WORKERS = ["-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder", "--max-worker-restart=0"]
_SELECTED = ["-m", "not storm and not soak"]


def main(arguments: Sequence[str]) -> int:
    """Run the steps; ``arguments`` are pytest's."""
    _describe_machine()
    with ThreadPoolExecutor() as pool:  # downloads wait, checks compute
        programs = pool.submit(_step, "programs")
        checks = pool.submit(_step, "check")
        if not (programs.result() and checks.result()):
            return CHECKS if programs.result() else PROGRAMS
    report = _run_tests(arguments)
    flaky, failed = _retry(report)
    return _summarize(report, flaky, failed)


def _describe_machine() -> None:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    _say(f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, load {_load()}")
    kafka = sorted(each.name for each in ROOT.glob(".tools/kafka/*"))
    _say(f"Python {platform.python_version()}, Kafka {' '.join(kafka) or 'not yet there'}")
    for name, command in {**_VERSIONS, "Spark": _spark_version()}.items():
        _say(f"{name}: {_first_line(command)}")


def _spark_version() -> list[str]:
    return [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]


def _first_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError:
        return "not there"
    return next(
        (line for line in done.stdout.splitlines() if re.search(r"\d\.\d", line)), "not there"
    )


def _step(target: str) -> bool:
    """Make a target of the Makefile; print its output if it fails."""
    started = time.monotonic()
    done = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    green = done.returncode == 0
    _say(f"{target}: {'passed' if green else 'FAILED'}, {time.monotonic() - started:.0f} s")
    if done.stdout.strip():
        print(done.stdout.rstrip(), flush=True)
    return green


def _run_tests(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Run every test that is selected; return what ``tests/report.py`` says of the run."""
    report = ROOT / "build" / "tests.json"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = [*_PYTEST, *_WORKERS, *_SELECTED, "-q", "--durations=20", f"--report={report}"]
    command += arguments
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    _say(f"tests: {time.monotonic() - started:.0f} s, load {_load()}")
    said = json.loads(report.read_text()) if report.exists() else {}
    return {"passed": 0, "failed": {}, "skipped": {}, "crashed": ["pytest"], **said, "exit": status}


def _retry(report: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Run the few tests that failed again, each alone; return those that passed and all others."""
    failed = list(report["failed"])
    if report["crashed"] or len(failed) > MOST_RETRIED:
        return [], failed
    retried = [test for test in failed if not report["failed"][test]["durability"]]
    flaky = [test for test in retried if _passes_alone(test, report["failed"][test]["text"])]
    return flaky, [test for test in failed if test not in flaky]


def _passes_alone(test: str, first: str) -> bool:
    done = subprocess.run(
        [*_PYTEST, "-n0", "-q", test],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    passed = done.returncode == 0
    print(f"{'FLAKY' if passed else 'FAILED TWICE'} {test} (load {_load()})")
    print(f"-- the first time:\n{first}\n-- the second time, alone:\n{done.stdout}", flush=True)
    return passed


def _summarize(report: Mapping[str, Any], flaky: Sequence[str], failed: Sequence[str]) -> int:
    unexpected = [test for test in report["skipped"] if not test.startswith(EXPECTED_SKIPS)]
    for test, reason in report["skipped"].items():
        print(f"SKIPPED {test}: {reason}{'' if test not in unexpected else ' (unexpected: red)'}")
    for test in flaky:
        print(f"FLAKY {test}")
    for test in failed:
        print(f"FAILED {test}\n  repeat: .venv/bin/pytest -n0 '{test}'")
    for worker in report["crashed"]:
        print(f"CRASHED {worker}")
    # pytest's own: 1 says that tests failed, which is judged here; others that it could not run.
    red = bool(failed or unexpected or report["crashed"] or report["exit"] not in (0, 1))
    red = red or (report["exit"] == 1 and not report["failed"])  # an error outside of tests
    _say(f"{'RED' if red else 'green'}; {len(flaky)} flaky, load {_load()}")
    passed = report["passed"] + len(flaky)
    print(f"{passed} passed, {len(failed)} failed, {len(report['skipped'])} skipped", flush=True)
    return TESTS if red else 0


def _load() -> str:
    return re.sub(r"[(),]", "", str(tuple(round(each, 1) for each in os.getloadavg())))


def _say(text: str) -> None:
    print(f"gate: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

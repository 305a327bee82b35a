"""The checks of ``penstock doctor`` on the machine: Java, Python, packages, cores.

Each check returns a ``CheckResult`` and changes nothing. The environment is an argument, so that a
test can describe a machine.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_WANTED = 17
PYTHON_WANTED = ">=3.10"
DISTRIBUTION = "penstock-spark"
"""The name for pip; that of another project, whose files have the same names, is penstock."""
PACKAGES = {"pyspark": ">=4.2,<5", "pyarrow": ">=17", "pandas": ">=2.2,<3"}
"""The ranges in pyproject.toml of the packages that jobs often replace."""

_JAVA_HINT = (
    "install Java 17 or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@21), "
    "and let JAVA_HOME name it where it is set"
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: what it found, what it expects, and how to fix the difference.

    A result that is not ``ok`` is an error if ``needed``, otherwise a warning.
    """

    name: str
    ok: bool
    found: str
    wanted: str
    hint: str
    needed: bool = True


def java_major_version(output: str) -> int | None:
    """Return 8, 11, 17 ... from the output of ``java -version``; None without a version."""
    # Before Java 9 the version began with "1.": 1.8.0_392 is Java 8.
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def satisfies(version: str, wanted: str) -> bool:
    """Whether a release such as "2.2.1" lies in a range such as ">=2,<3"."""
    release = _release(version)
    for bound in wanted.split(","):
        if bound.startswith(">=") and release < _release(bound[2:]):
            return False
        if bound.startswith("<") and release >= _release(bound[1:]):
            return False
    return True


def check_java(environ: Mapping[str, str]) -> CheckResult:
    """Find the Java that Spark will start: that of JAVA_HOME if set, otherwise the one on PATH."""
    home = environ.get("JAVA_HOME")
    java = (
        str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH"))
    )
    major = java_major_version(_output_of(java, "-version")) if java else None
    return CheckResult(
        name="Java",
        ok=major is not None and major >= JAVA_WANTED,
        found=f"{major or 'none'} ({java or 'not on PATH, and JAVA_HOME is not set'})",
        wanted=f">={JAVA_WANTED}",
        hint=_JAVA_HINT,
    )


def check_python() -> CheckResult:
    """Check the current Python, which is also the driver's."""
    version = platform.python_version()
    return CheckResult(
        name="Python",
        ok=satisfies(version, PYTHON_WANTED),
        found=f"{version} ({sys.executable})",
        wanted=PYTHON_WANTED,
        hint="make a virtual environment with a later Python and install penstock-spark there",
    )


def check_worker_python(environ: Mapping[str, str]) -> CheckResult:
    """Check that Spark's Python workers will run in the current environment."""
    named = environ.get("PYSPARK_PYTHON")
    if named is None:
        found, ok = "not set: penstock sets it to the Python that runs the driver", True
    else:
        prefix = _output_of(named, "-c", "import sys; print(sys.prefix)").strip()
        # Not the executable's own path: a virtual environment's is a link to the system's Python.
        ok = os.path.isdir(prefix) and os.path.samefile(prefix, sys.prefix)
        found = named if ok else f"{named} (environment: {prefix or 'cannot be run'})"
    return CheckResult(
        name="PYSPARK_PYTHON",
        ok=ok,
        found=found,
        wanted=f"{sys.executable}, or not set",
        hint=f"unset PYSPARK_PYTHON, or: export PYSPARK_PYTHON={sys.executable}",
    )


def check_distribution() -> CheckResult:
    """Check that what ``import penstock`` finds is this package, and no other one's beside it."""
    versions = {name: _installed_version(name) for name in (DISTRIBUTION, "penstock")}
    installed = [f"{name} {version}" for name, version in versions.items() if version]
    return CheckResult(
        name=DISTRIBUTION,
        ok=bool(versions[DISTRIBUTION]) and not versions["penstock"],
        found=" and ".join(installed) or "not installed",
        wanted=f"{DISTRIBUTION}, and not the other package that is called penstock",
        hint=f"pip uninstall -y penstock {DISTRIBUTION}, then pip install {DISTRIBUTION}: "
        "the two install files of the same names",
    )


def check_package(name: str) -> CheckResult:
    """Check that penstock supports the installed version of a package."""
    wanted = PACKAGES[name]
    version = _installed_version(name)
    return CheckResult(
        name=name,
        ok=bool(version) and satisfies(version, wanted),
        found=version or "not installed",
        wanted=wanted,
        hint=f"pip install '{name}{wanted}'",
    )


def _installed_version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_cores() -> CheckResult:
    """Count the cores that this process may use; a receiver occupies one task slot."""
    # macOS has no affinities.
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return CheckResult(
        name="cores",
        ok=cores >= 2,
        found=str(cores),
        wanted=">=2 (one for a receiver)",
        hint="with one core, still give Spark two slots: master local[2]",
        needed=False,
    )


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _output_of(*command: str) -> str:
    """Return a program's output, including its error stream; empty if it cannot be run."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")

"""``penstock doctor``: what a machine lacks for a first run. It leaves nothing behind."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_line
from penstock.cli.tables import table_lines
from penstock.errors import AlreadyExistsError, PenstockError
from penstock.storage import Storage, open_storage
from penstock.storage.urls import local_root

app = typer.Typer()
_DISTRIBUTION = "penstock-spark"
"""The name for pip; that of another project, whose files have the same names, is penstock."""
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[.*\])?([^;]*)(?:.*extra == '(\w+)')?")
_JAVA_HINT = (
    "install Java 17 or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@21), "
    "and let JAVA_HOME name it where it is set"
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found, and how to fix it: an error if ``needed``, otherwise a warning."""

    name: str
    ok: bool
    found: str
    hint: str
    needed: bool = True


@app.command("doctor")
def doctor(
    path: Annotated[
        str, typer.Argument(help="Folder or URL for journal and checkpoints.", show_default=False)
    ] = tempfile.gettempdir(),
    master: Annotated[
        str | None,
        typer.Option(help="Run a job at this Spark master: do its executors share the path?"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Report what this machine lacks; exit status 1 if a requirement is missing."""
    results = [*check_machine(os.environ), *check_packages(), *check_location(path)]
    if master is not None:
        results.append(_check_executors(master, path))
    passed = all(result.ok for result in results if result.needed)
    if as_json:
        typer.echo(json.dumps({"ok": passed, "findings": [asdict(each) for each in results]}))
    else:
        words = {(True, True): "ok", (True, False): "ok", (False, True): "MISSING"}
        rows = [(words.get((e.ok, e.needed), "warning"), e.name, e.found) for e in results]
        for line in table_lines(("", "check", "found"), rows):
            print_line(line)
        for result in results:
            if not result.ok:
                print_line(f"{result.name}: {result.hint}")
    if not passed:
        raise typer.Exit(1)


def check_java(environ: Mapping[str, str]) -> CheckResult:
    """Find the Java that Spark will start: that of JAVA_HOME if set, otherwise the one on PATH."""
    home, path = environ.get("JAVA_HOME"), environ.get("PATH")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=path)
    # Before Java 9 the version began with "1.": 1.8.0_392 is Java 8.
    match = re.search(r'version "(?:1\.)?(\d+)', _output_of(java or "", "-version"))
    major = int(match[1]) if match else 0
    found = f"{major or 'none'} ({java or 'not on PATH, and JAVA_HOME is not set'})"
    return CheckResult("Java", major >= 17, found, _JAVA_HINT)


def check_machine(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check Java, the driver's and the workers' Python, cores and memory."""
    yield check_java(environ)
    found, hint = platform.python_version(), "use an environment with Python 3.10 or later"
    yield CheckResult("Python", sys.version_info >= (3, 10), found, hint)
    worker = environ.get("PYSPARK_PYTHON", sys.executable)
    # Not the executable's own path: a virtual environment's is a link to the system's Python.
    prefix = _output_of(worker, "-c", "import sys; print(sys.prefix)").strip()
    is_same = os.path.isdir(prefix) and os.path.samefile(prefix, sys.prefix)
    found = f"{worker} (environment: {prefix or 'cannot be run'})"
    hint = f"unset PYSPARK_PYTHON, or: export PYSPARK_PYTHON={sys.executable}"
    yield CheckResult("PYSPARK_PYTHON", is_same, found, hint)
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    hint = "a receiver takes a task slot, so give Spark two: master local[2]"
    yield CheckResult("cores", cores >= 2, f"{cores}", hint, needed=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    hint = "Spark's driver takes 1 GiB, and each Python worker more: set spark.driver.memory"
    yield CheckResult("memory", memory >= 2, f"{memory:.1f} GiB", hint, needed=False)


def check_packages() -> Iterator[CheckResult]:
    """Check that ``import penstock`` is this package, and the packages that its metadata names."""
    versions = {name: _version(name) for name in (_DISTRIBUTION, "penstock")}
    found = " and ".join(f"{name} {found}" for name, found in versions.items() if found)
    hint = f"pip uninstall -y penstock {_DISTRIBUTION}, then pip install {_DISTRIBUTION}: "
    hint += "the two install files of the same names"
    is_own = bool(versions[_DISTRIBUTION]) and not versions["penstock"]
    yield CheckResult(_DISTRIBUTION, is_own, found or "not installed", hint)
    extras: dict[str, bool] = defaultdict(lambda: True)
    for text in (versions[_DISTRIBUTION] and requires(_DISTRIBUTION)) or ():
        name, wanted, extra = _REQUIREMENT.findall(text)[0]
        found = _version(name)
        is_good = bool(found) and satisfies(found, wanted)
        if extra:
            extras[extra] &= is_good
        else:
            hint = f"pip install '{name}{wanted.strip()}'"
            yield CheckResult(name, is_good, found or "not installed", hint)
    for extra, is_good in extras.items():
        hint = f"if it is used: pip install '{_DISTRIBUTION}[{extra}]'"
        yield CheckResult(f"extra {extra}", True, "installed" if is_good else hint, hint)


def check_location(path: str) -> list[CheckResult]:
    """Try a remote store, or a folder: the nearest one above it, if it does not exist."""
    root = local_root(path)
    if root is None:
        return _try_store(path, path)
    above = (Path(root).absolute(), *Path(root).absolute().parents)
    folder = next(each for each in above if each.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=folder) as scratch:
            return _try_store(path, scratch)
    except OSError as error:
        hint = "name another folder, or let this user write in this one"
        return [CheckResult("store", False, f"{error.strerror or error}: {folder}", hint)]


def _try_store(path: str, url: str) -> list[CheckResult]:
    """Create, create again, read, list and delete files, as a program does."""
    folder = f"penstock-doctor/{uuid.uuid4().hex}"
    hint = "check the URL, the credentials and the extra (penstock-spark[s3])"
    try:
        storage = open_storage(url)
        try:
            return [CheckResult("store", True, path, hint), *_tried(storage, folder)]
        finally:
            with suppress(PenstockError):  # the check says what fails
                storage.delete_all(storage.find(folder))
    except PenstockError as error:
        return [CheckResult("store", False, error.message, error.hint or hint)]


def _tried(storage: Storage, folder: str) -> Iterator[CheckResult]:
    times_ms = []
    for number in range(5):
        began_s = time.perf_counter()
        storage.create(f"{folder}/{number}", b"text")
        times_ms.append((time.perf_counter() - began_s) * 1000)
    found_ms = statistics.median(times_ms)
    hint = "every batch waits for two of these; choose a faster disk, or a nearer store"
    yield CheckResult("small file", found_ms <= 200, f"{found_ms:.1f} ms", hint, needed=False)
    files, now_s = storage.walk(folder), time.time()
    is_whole = len(files) == 5 and storage.read(f"{folder}/1") == b"text"
    hint = "the store is not consistent: penstock needs what S3, GCS and Azure promise"
    yield CheckResult("read and list", is_whole, "as written" if is_whole else "not so", hint)
    ahead_s = max((each.modified_ms or now_s * 1000) for each in files) / 1000 - now_s
    hint = "set this clock and the store's by NTP: ages of files are wrong"
    yield CheckResult("clock", abs(ahead_s) < 60, f"store {ahead_s:+.0f} s", hint, needed=False)
    with suppress(AlreadyExistsError):
        storage.create(f"{folder}/0", b"again")
        hint = "the store ignores conditional writes (If-None-Match): use one that has them"
        yield CheckResult("exclusive create", False, "no: a file was replaced", hint)
        return
    yield CheckResult("exclusive create", True, "yes", "")


def _check_executors(master: str, url: str) -> CheckResult:
    """Run a task on each executor of a cluster that creates and reads files at a path."""
    from pyspark import SparkConf, SparkContext

    from penstock.driver.shared_location import check_shared

    try:
        conf = SparkConf().setMaster(master).setAppName("penstock doctor")
        sc = SparkContext(conf=conf.set("spark.ui.enabled", "false"))
        try:
            check_shared(sc, open_storage(url))
        finally:
            sc.stop()
    except Exception as error:  # Spark's own are many
        hint = getattr(error, "hint", None) or "see the log of the master, and of its executors"
        return CheckResult("shared path", False, getattr(error, "message", str(error)), hint)
    return CheckResult("shared path", True, f"executors of {master} share {url}", "")


def satisfies(release: str, wanted: str) -> bool:
    """Whether a release such as "2.2.1" is in a range such as ">=2,<3", of these two signs."""
    number, bounds = _numbers(release), [each.strip() for each in wanted.split(",")]
    least = (_numbers(each[2:]) for each in bounds if each.startswith(">="))
    below = (_numbers(each[1:]) for each in bounds if each.startswith("<"))
    return all(number >= each for each in least) and all(number < each for each in below)


def _numbers(release: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", release)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _output_of(*command: str) -> str:
    """Return a program's output, including its error stream; empty if it cannot be run."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=True
        ).stdout.decode(errors="replace")
    return ""

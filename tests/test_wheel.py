"""The wheel is built, installed into an environment of its own, and used there.

What is proved: what is in the wheel is enough, beside the locked packages of its dependencies,
which the new environment finds in this one. That pip finds these packages itself takes a network:
tests/soak/test_installation.py.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import penstock
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"


def environment() -> dict[str, str]:
    """Return what a program of the new environment sees: nothing of these tests."""
    hidden = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    return {name: value for name, value in os.environ.items() if name not in hidden}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, whose dependencies come from this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Its own .pth files are not followed, so the sources of this project are not found by it.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    paths = (path for path in SOURCES.rglob("*") if "__pycache__" not in path.parts)
    files = (path for path in paths if path.is_file())
    example = "penstock/cli/log_words.py"  # `penstock demo` runs it
    assert names == {str(path.relative_to(SOURCES)) for path in files} | {example}
    assert "penstock/py.typed" in names


def test_the_metadata_says_what_it_is_and_what_it_needs(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("penstock-spark", penstock.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    classifiers = set(metadata.get_all("Classifier", []))
    assert "Typing :: Typed" in classifiers
    pythons = {c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c}
    assert pythons == {"3.10", "3.11", "3.12", "3.13"}
    assert not any(c.startswith("License ::") for c in classifiers)  # beside an expression: invalid
    assert metadata.get_all("Project-URL") is None  # it has no public address
    extras = set(metadata.get_all("Provides-Extra", []))
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    assert [extra for extra in extras if not any(_is_of(each, extra) for each in needed)] == []
    assert "penstock-spark" not in {each.name for each in needed}


def _is_of(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def test_it_is_used_where_it_is_installed(python: Path, tmp_path: Path) -> None:
    program = (
        "import importlib, pkgutil, penstock\n"
        "for each in pkgutil.walk_packages(penstock.__path__, 'penstock.'):\n"
        "    importlib.import_module(each.name)\n"
        "print(penstock.__file__)"
    )
    done = subprocess.run(
        [str(python), "-W", "error::ImportWarning", "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(python.parents[1])


def test_its_command_receives_into_a_journal_and_reads_it(python: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    journal = ["--journal", str(tmp_path / "journal"), "--stream", "s"]
    command = str(python.with_name("penstock"))
    with subprocess.Popen(
        [command, "ingest", "tail", str(tmp_path / "log"), *journal],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if " receives: " in line:
                    break
            assert eventually(lambda: read(command, tmp_path) == "one\ntwo\n")
        finally:
            process.terminate()
    assert process.returncode == 0


def read(command: str, folder: Path) -> str:
    cat = [command, "journal", "cat", str(folder / "journal"), "s"]
    done = subprocess.run(cat, cwd=folder, env=environment(), capture_output=True, text=True)
    return done.stdout


def test_texts_name_the_distribution_and_not_the_other_package_of_that_name() -> None:
    """``pip install penstock`` installs someone else's package."""
    folders = ("src", "docs", "examples", "deploy", "scripts", "bench")
    files = [*ROOT.glob("*.md"), *(f for each in folders for f in (ROOT / each).rglob("*.*"))]
    wrong = re.compile(r"install '?penstock\b(?!-spark)|\bpenstock\[[a-z]")
    texts = {f: f.read_text() for f in files if f.suffix in {".md", ".py", ".sh", ".yml", ".svg"}}
    assert len(texts) > 500
    assert [w for t in texts.values() for w in t.splitlines() if wrong.search(w)] == []

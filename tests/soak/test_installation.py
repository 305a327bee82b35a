"""What docs/install.md says, by the ordinary clients: extras, Pythons, PySpark, uv and pipx.

Needs the package index. A Python that this machine lacks is skipped as not proved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import metadata
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
EXTRAS = sorted(metadata("penstock-spark").get_all("Provides-Extra", []))
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
DSTREAMS = (
    "tests/journal/test_spark.py",
    "tests/streaming/test_operations.py",
    "tests/streaming/test_state_recovery.py",
    "tests/checkpoint/tools/test_altered_entries.py",
)
BOTH = (*DSTREAMS, "tests/structured/test_journal_source.py")
PYSPARKS = {
    "4.0": (*DSTREAMS, "-k", "not alike or not null"),
    "4.1": DSTREAMS,
    "4.2": BOTH,
}
"""What a version can run: data sources with admission control came with 4.2, and columns of type
null (VOID) in Parquet with 4.1."""

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with uv and pipx."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", "uv", "pipx", "hatchling")
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(tools / "hatchling", "build", "-t", "wheel", "-d", folder)
    (built,) = folder.glob("*.whl")
    return built


def run(*command: object, folder: Path = ROOT, **environment: object) -> str:
    """Run a command; return what it printed, which the error of one that fails ends with."""
    hidden = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_TOOL_OPTIONS"}
    seen = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**seen, **{name: str(value) for name, value in environment.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}"
    return done.stdout


def python_of(version: str) -> str:
    """Return an interpreter of this version; skip where this machine has none."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which(name), *sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"))):
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return str(found)
    pytest.skip(f"NOT PROVED: this machine has no {name}")


@pytest.mark.parametrize("extras", [*([extra] for extra in EXTRAS), EXTRAS], ids="+".join)
def test_extras_resolve_on_every_supported_python(tools: Path, extras: Sequence[str]) -> None:
    wanted = [part for extra in extras for part in ("--extra", extra)]
    options = ["--universal", "--python-version", PYTHONS[0], "--quiet", "--no-header"]
    resolved = run(tools / "uv", "pip", "compile", "pyproject.toml", *wanted, *options)
    assert "pyspark==4." in resolved


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_the_command_is_installed_as_a_tool(
    tools: Path, wheel: Path, tmp_path: Path, tool: str
) -> None:
    with_extra = f"penstock-spark[http,mqtt] @ {wheel.as_uri()}"
    bin_folder = tmp_path / "bin"
    if tool == "uv":
        places = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": bin_folder}
        run(tools / "uv", "tool", "install", "--python", sys.executable, with_extra, **places)
    else:
        places = {"PIPX_HOME": tmp_path / "pipx", "PIPX_BIN_DIR": bin_folder}
        run(tools / "pipx", "install", "--python", sys.executable, with_extra, **places)
    assert run(bin_folder / "penstock", "--version") == f"penstock {penstock.__version__}\n"
    run(bin_folder / "penstock", "ingest", "http", "--help")


@pytest.mark.parametrize("version", PYTHONS)
def test_a_python_runs_a_small_suite_on_the_locked_packages(version: str, tmp_path: Path) -> None:
    copy = copy_of_the_project(tmp_path)
    run(copy / "scripts" / "setup.sh", PYTHON=python_of(version))
    run(copy / ".venv" / "bin" / "pytest", "-q", "--collect-only", "tests", folder=copy)
    run_suite(copy, BOTH)


@pytest.mark.parametrize("version", PYSPARKS)
def test_a_pyspark_runs_what_it_can(tools: Path, version: str, tmp_path: Path) -> None:
    """Only 4.2 and later are supported, and pip refuses the others: Structured Streaming fails."""
    copy = copy_of_the_project(tmp_path)
    run(tools / "uv", "venv", "--python", sys.executable, copy / ".venv")
    locked = (copy / "requirements.lock").read_text()
    others = [line.rstrip(" \\") for line in locked.splitlines() if "==" in line[:60]]
    constraints = tmp_path / "constraints.txt"
    kept = [name for name in others if not name.startswith(("pyspark==", "#"))]
    constraints.write_text("\n".join(kept))
    install = [tools / "uv", "pip", "install", "--python", copy / ".venv" / "bin" / "python"]
    run(*install, "-r", constraints, f"pyspark=={version}.*")
    run(*install, "--no-deps", "--editable", copy)
    run_suite(copy, PYSPARKS[version])


def copy_of_the_project(folder: Path) -> Path:
    """Return a copy of the files that are under version control, as they are now."""
    copy = folder / "project"
    for name in run("git", "ls-files").splitlines():
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def run_suite(copy: Path, names: Sequence[str]) -> None:
    python = copy / ".venv" / "bin" / "python"
    where = ["--rootdir", copy, "-c", copy / "pyproject.toml"]
    where += ["-o", "filterwarnings="]  # earlier versions of PySpark leave sockets open
    run(python, "-m", "pytest", "-q", "-x", *where, *names, folder=copy)

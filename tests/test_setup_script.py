"""scripts/setup.sh on described machines: a PATH of stand-ins that log how they are called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SYSTEM_TOOLS = ["awk", "bash", "cat", "cp", "dirname", "env", "head", "mkdir", "sed"]

# Runs programs with the real interpreter; of venv and pip it does only as much as setup.sh sees.
PYTHON = f"""
case "$1 $2" in
    "-m venv") echo "python $*" >>"$LOG"; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip") echo "python $*" >>"$LOG"; exit "${{PIP_STATUS:-0}}" ;;
    *) exec {sys.executable} "$@" ;;
esac
"""


@dataclass
class Machine:
    """A copy of the project's set-up files, and the commands that its machine has."""

    root: Path

    def add(self, name: str, script: str) -> None:
        command = self.root / "bin" / name
        command.write_text(f"#!/bin/bash\n{script}\n")
        command.chmod(0o755)

    def add_java(self, major: int, name: str = "java") -> None:
        self.add(name, f"echo 'openjdk version \"{major}.0.1\"' >&2")

    def setup(self, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "bin" / "bash"), str(self.root / "scripts" / "setup.sh")],
            env={"PATH": str(self.root / "bin"), "LOG": str(self.log), **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def log(self) -> Path:
        return self.root / "log"

    def calls(self) -> list[str]:
        """Return the commands that were called since the last time this was asked."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Python and without Java, where the user is not root."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    for tool in SYSTEM_TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    made = Machine(tmp_path)
    made.add("id", "echo 1000")
    made.add("python3", PYTHON)
    return made


def be_root_on_debian(machine: Machine, *packages: str, java: int) -> None:
    """Let apt have some packages, of which any installs a Java."""
    machine.add("id", "echo 0")
    machine.add("apt-cache", f'case " {" ".join(packages)} " in *" $2 "*) echo "$2 | 1.0" ;; esac')
    machine.add_java(java, name="java.package")
    machine.add(
        "apt-get",
        'echo "apt-get $*" >>"$LOG"\n'
        f'[ "$1" != install ] || cp {machine.root}/bin/java.package {machine.root}/bin/java',
    )


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-21-openjdk-headless"),
        ("brew", "brew install openjdk@21"),
    ],
)
def test_missing_java_names_the_command_of_the_platform(
    machine: Machine, manager: str, command: str
) -> None:
    machine.add(manager, f'echo {manager} >>"$LOG"')

    done = machine.setup()

    assert done.returncode == 1
    assert "Java 17 or later is needed, found none" in done.stderr
    assert command in done.stderr
    assert machine.calls() == []


def test_old_java_is_named(machine: Machine) -> None:
    machine.add_java(11)

    assert "Java 17 or later is needed, found Java 11" in machine.setup().stderr


def test_java_home_is_never_fixed_by_installing(machine: Machine) -> None:
    be_root_on_debian(machine, "openjdk-17-jre-headless", java=17)

    done = machine.setup(JAVA_HOME="/nowhere")

    assert done.returncode == 1
    assert "found none in JAVA_HOME=/nowhere" in done.stderr
    assert machine.calls() == []


@pytest.mark.parametrize(
    ("packages", "chosen", "java"),
    [
        (["openjdk-17-jre-headless", "default-jre-headless"], "openjdk-17-jre-headless", 17),
        (["default-jre-headless"], "default-jre-headless", 21),
    ],
)
def test_root_on_debian_gets_java_installed(
    machine: Machine, packages: list[str], chosen: str, java: int
) -> None:
    be_root_on_debian(machine, *packages, java=java)

    done = machine.setup()

    assert done.returncode == 0, done.stderr
    installed = [call for call in machine.calls() if call.startswith("apt-get install")]
    assert installed == [f"apt-get install -y -qq --no-install-recommends {chosen}"]


def test_a_default_java_that_is_too_old_is_refused(machine: Machine) -> None:
    be_root_on_debian(machine, "default-jre-headless", java=11)

    done = machine.setup()

    assert done.returncode == 1
    assert "found Java 11" in done.stderr


def test_old_python_is_refused(machine: Machine) -> None:
    machine.add_java(17)
    machine.add("python3", '[ "$1" != --version ] || echo Python 3.9.2; exit 1')

    done = machine.setup()

    assert done.returncode == 1
    assert "Python 3.10 or later is needed, python3 is Python 3.9.2" in done.stderr


def test_missing_venv_module_names_the_package(machine: Machine) -> None:
    machine.add_java(17)
    machine.add("apt-get", "")
    machine.add("python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    machine.add("id", "echo 1000")

    done = machine.setup()

    assert done.returncode == 1
    assert "sudo apt-get install -y python3-venv" in done.stderr


def test_first_run_installs_from_the_lock_and_second_does_nothing(machine: Machine) -> None:
    machine.add_java(17)

    first = machine.setup()
    assert first.returncode == 0, first.stderr
    made, build_tools, packages, project = machine.calls()
    assert made == "python -m venv --clear .venv"
    assert "--require-hashes --no-deps" in build_tools
    assert packages.endswith("-r requirements.lock")
    assert "--require-hashes" in packages
    assert project.endswith("--no-index --no-deps --no-build-isolation --editable .")

    second = machine.setup()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert machine.calls() == []


def test_a_changed_lock_builds_the_environment_again(machine: Machine) -> None:
    machine.add_java(17)
    machine.setup()
    machine.calls()
    with (machine.root / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")

    machine.setup()

    assert machine.calls()[0] == "python -m venv --clear .venv"


def test_a_changed_project_is_installed_again_alone(machine: Machine) -> None:
    machine.add_java(17)
    machine.setup()
    machine.calls()
    with (machine.root / "pyproject.toml").open("a") as project:
        project.write("# changed\n")

    machine.setup()

    [only] = machine.calls()
    assert only.endswith("--editable .")


def test_an_interrupted_run_is_done_again(machine: Machine) -> None:
    machine.add_java(17)
    assert machine.setup(PIP_STATUS="1").returncode == 1
    machine.calls()

    assert machine.setup().returncode == 0
    assert len(machine.calls()) == 4

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import doctor as doctor_module
from penstock.cli import main as cli
from penstock.cli.doctor import satisfies
from penstock.storage import open_storage
from penstock.storage.remote import FsspecStorage

ROOT = Path(__file__).parents[2]

JAVA_8 = 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)'
JAVA_11 = 'openjdk version "11.0.21" 2023-10-17'
JAVA_17 = 'Picked up JAVA_TOOL_OPTIONS: -Dversion="8"\nopenjdk version "17.0.15" 2025-04-15'
JAVA_21 = 'openjdk version "21" 2023-09-19'


def write_java(folder: Path, output: str, status: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' '{output}' >&2\nexit {status}\n")
    java.chmod(0o755)


def run_doctor(
    path: Path, *arguments: str, **environ: str | None
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run ``penstock doctor --json``; return its exit status and the findings by name."""
    machine = {"JAVA_HOME": None, "PYSPARK_PYTHON": None, "SPARK_MASTER": None, "SPARK_HOME": None}
    done = CliRunner().invoke(
        cli.app,
        ["doctor", "--json", str(path), *arguments],
        env={**machine, "SPARK_CONF_DIR": None, **environ},
        catch_exceptions=False,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"] == (done.exit_code == 0)
    return done.exit_code, {finding["name"]: finding for finding in report["findings"]}


@pytest.fixture
def java_17(tmp_path: Path) -> str:
    """A folder for PATH that holds a Java 17."""
    write_java(tmp_path / "bin", JAVA_17)
    return str(tmp_path / "bin")


@pytest.mark.parametrize(
    ("output", "major", "enough"),
    [
        (JAVA_8, 8, False),
        (JAVA_11, 11, False),
        (JAVA_17, 17, True),
        (JAVA_21, 21, True),
        ('openjdk version "22-ea" 2024-03-19', 22, True),
    ],
)
def test_java_on_path_is_judged_by_its_version(
    tmp_path: Path, output: str, major: int, enough: bool
) -> None:
    write_java(tmp_path, output)

    status, findings = run_doctor(tmp_path, PATH=str(tmp_path))

    assert findings["Java"]["ok"] is enough
    assert findings["Java"]["found"] == f"{major} ({tmp_path}/java)"
    assert status == (0 if enough else 1)


def test_missing_java_is_named_with_the_commands_that_install_it(tmp_path: Path) -> None:
    status, findings = run_doctor(tmp_path, PATH=str(tmp_path))

    assert status == 1
    assert findings["Java"]["found"].startswith("none")
    assert "apt-get install openjdk-17-jre-headless" in findings["Java"]["hint"]


def test_java_that_cannot_run_counts_as_none(tmp_path: Path) -> None:
    write_java(tmp_path, 'The operation could not be completed: version "17"', status=1)

    assert not run_doctor(tmp_path, PATH=str(tmp_path))[1]["Java"]["ok"]


def test_java_home_goes_before_path(tmp_path: Path, java_17: str) -> None:
    write_java(tmp_path / "old" / "bin", JAVA_11)

    _, findings = run_doctor(tmp_path, PATH=java_17, JAVA_HOME=str(tmp_path / "old"))

    assert findings["Java"]["found"].startswith("11 ")


def test_java_home_without_a_java_is_an_error(tmp_path: Path, java_17: str) -> None:
    _, findings = run_doctor(tmp_path, PATH=java_17, JAVA_HOME=str(tmp_path / "none"))

    assert not findings["Java"]["ok"]


def test_worker_python_may_be_unset_or_this_one(tmp_path: Path, java_17: str) -> None:
    for python in (None, sys.executable):
        _, findings = run_doctor(tmp_path, PATH=java_17, PYSPARK_PYTHON=python)
        assert findings["PYSPARK_PYTHON"]["ok"]


def test_worker_python_of_another_environment_is_an_error(tmp_path: Path, java_17: str) -> None:
    # As in a virtual environment: the same interpreter behind it, but other packages.
    other = tmp_path / "python3"
    other.write_text(f"#!/bin/sh\necho {tmp_path}\n")
    other.chmod(0o755)

    status, findings = run_doctor(tmp_path, PATH=java_17, PYSPARK_PYTHON=str(other))

    assert status == 1
    assert str(tmp_path) in findings["PYSPARK_PYTHON"]["found"]
    assert sys.executable in findings["PYSPARK_PYTHON"]["hint"]


def test_worker_python_that_is_not_there_is_an_error(tmp_path: Path, java_17: str) -> None:
    _, findings = run_doctor(tmp_path, PATH=java_17, PYSPARK_PYTHON=str(tmp_path / "none"))

    assert "cannot be run" in findings["PYSPARK_PYTHON"]["found"]


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("4.2.0", ">=4.2,<5", True),
        ("4.1.9", ">=4.2,<5", False),
        ("5.0.0", ">=4.2,<5", False),
        ("4.10.0.dev1", ">=4.2,<5", True),
        ("26.0.1", ">=17", True),
    ],
)
def test_version_ranges(version: str, wanted: str, expected: bool) -> None:
    assert satisfies(version, wanted) is expected


def test_packages_and_extras_are_those_that_the_metadata_names(
    tmp_path: Path, java_17: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = ["pyspark<5,>=4.2", "pandas<2,>=1", "no-such>=3; extra == 'mqtt'"]
    needed += ["uvicorn<1,>=0.30; extra == 'http'", "pytest[x]>=8; (os != 'a') and extra == 'http'"]
    monkeypatch.setattr(doctor_module, "requires", lambda _: needed)
    status, findings = run_doctor(tmp_path, PATH=java_17)
    assert status == 1
    assert findings["pyspark"]["ok"]
    assert findings["pandas"]["hint"] == "pip install 'pandas<2,>=1'"
    assert findings["extra http"]["found"] == "installed"
    wanted = "if it is used: pip install 'penstock-spark[mqtt]'"
    assert findings["extra mqtt"] == {
        "name": "extra mqtt",
        "ok": True,
        "found": wanted,
        "hint": wanted,
        "needed": True,
    }


def test_good_path_is_measured_and_left_as_it_was(tmp_path: Path, java_17: str) -> None:
    _, findings = run_doctor(tmp_path, PATH=java_17)

    assert findings["store"]["ok"]
    assert findings["exclusive create"]["ok"]
    assert findings["clock"]["ok"]
    assert findings["memory"]["found"].endswith(" GiB")
    assert float(findings["small file"]["found"].removesuffix(" ms")) > 0
    assert [child.name for child in tmp_path.iterdir()] == ["bin"]


def test_path_that_is_not_there_yet_is_tried_at_its_parent(tmp_path: Path, java_17: str) -> None:
    _, findings = run_doctor(tmp_path / "a" / "b", PATH=java_17)

    assert findings["store"]["ok"]
    assert not (tmp_path / "a").exists()


def test_path_under_a_file_is_an_error(tmp_path: Path, java_17: str) -> None:
    (tmp_path / "file").touch()

    status, findings = run_doctor(tmp_path / "file" / "journal", PATH=java_17)

    assert status == 1
    assert not findings["store"]["ok"]
    assert "small file" not in findings


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_path_without_write_permission_is_an_error(tmp_path: Path, java_17: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)

    status, findings = run_doctor(closed, PATH=java_17)

    assert status == 1
    assert "Permission denied" in findings["store"]["found"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_path_where_even_root_cannot_write_is_an_error(java_17: str) -> None:
    status, findings = run_doctor(Path("/proc"), PATH=java_17)

    assert status == 1
    assert not findings["store"]["ok"]


def test_file_system_without_hard_links_is_an_error(
    tmp_path: Path, java_17: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    status, findings = run_doctor(tmp_path, PATH=java_17)

    assert status == 1
    assert "hard links" in findings["store"]["found"]


def test_table_shows_what_is_missing_and_the_fix(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli.app,
        ["doctor", str(tmp_path)],
        env={"JAVA_HOME": None, "PATH": str(tmp_path)},
    )

    assert done.exit_code == 1
    assert "MISSING" in done.stdout
    assert "Java: install Java 17 or later" in done.stdout


def doctor(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = CliRunner().invoke(cli.app, ["doctor", "--json", *arguments], catch_exceptions=False)
    report = json.loads(done.stdout.splitlines()[-1])
    return done.exit_code, {finding["name"]: finding for finding in report["findings"]}


def test_an_object_store_is_tried_as_a_program_uses_it_and_left_as_it_was(s3_bucket: str) -> None:
    url = f"{s3_bucket}/{uuid.uuid4().hex}"
    _, findings = doctor(url)
    for name in ("store", "exclusive create", "read and list"):
        assert findings[name]["ok"], findings[name]
    assert float(findings["small file"]["found"].removesuffix(" ms")) > 0
    assert open_storage(url).find("penstock-doctor") == []


def test_a_store_that_replaces_files_is_an_error(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = FsspecStorage.create

    def replacing(self: FsspecStorage, path: str, data: Any, *, overwrite: bool = False) -> None:
        create(self, path, data, overwrite=True)

    monkeypatch.setattr(FsspecStorage, "create", replacing)
    status, findings = doctor(f"{s3_bucket}/{uuid.uuid4().hex}")
    assert status == 1
    assert findings["exclusive create"]["found"] == "no: a file was replaced"


def test_a_bucket_that_is_not_there_is_named(s3_bucket: str) -> None:
    status, findings = doctor("s3://no-such-bucket/journal")
    assert status == 1
    assert "no-such-bucket" in findings["store"]["found"]


def test_the_other_package_of_the_name_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "penstock-0.1.0.dist-info").mkdir(parents=True)
    (site / "penstock-0.1.0.dist-info/METADATA").write_text("Name: penstock\nVersion: 0.1.0\n")
    finding = doctor(str(tmp_path))[1]["penstock-spark"]
    assert finding["ok"] is (version("penstock-spark") == penstock.__version__)
    monkeypatch.syspath_prepend(str(site))
    status, findings = doctor(str(tmp_path))
    assert status == 1
    assert "penstock 0.1.0" in findings["penstock-spark"]["found"]
    assert "pip uninstall -y penstock penstock-spark" in findings["penstock-spark"]["hint"]


@pytest.mark.spark
@pytest.mark.slow
def test_executors_are_tried_by_a_job() -> None:
    """Memory is not an executor's but one's own."""
    command = [str(Path(sys.executable).with_name("penstock")), "doctor", "--json"]
    path, master = f"memory://{uuid.uuid4().hex}", "local-cluster[1,1,1024]"
    given = [path, "--master", master]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    report = json.loads(done.stdout.splitlines()[-1])
    (found,) = (each for each in report["findings"] if each["name"] == "shared path")
    assert not found["ok"]
    assert found["found"].startswith("executors do not share"), found

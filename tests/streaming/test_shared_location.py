"""Programs on a cluster whose checkpoint location is not shared are refused at start."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

import pytest

import tests
from tests.faults.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("shared_location_program.py")


def test_executors_are_probed_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is not an executor's but one's own; the folder is shared, and left clean."""
    monkeypatch.setenv("PYTHONPATH", str(Path(tests.__file__).parents[1]))  # without penstock
    arguments = [f"memory://probed{tmp_path}", str(tmp_path / "location")]
    arguments.append(python_without_penstock(tmp_path / "python"))
    with Driver(PROGRAM, arguments, tmp_path / "errors", own_pythons=True) as driver:
        said = driver.wait_line("")
        assert said.startswith("refused UnsharedPathError: executors do not share"), driver.log()
        assert driver.wait_line("") == "counted [('a', 2)]"
        said = driver.wait_line("")
        assert said.startswith("refused ConfigError: executors' Python cannot load"), driver.log()
        assert "ModuleNotFoundError: No module named 'penstock'" in said
    assert not list((tmp_path / "location" / "probes").iterdir())


def python_without_penstock(folder: Path) -> str:
    """Make an environment with the other packages of this one; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Python searches folders that a .pth file names, and ignores .pth files in them: penstock's.
    (packages / "these.pth").write_text(sysconfig.get_path("purelib"))
    return str(folder / "bin" / "python")

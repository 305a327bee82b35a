from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import penstock

MODULES = ["penstock"] + [
    module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock.")
]

# Workers and `penstock ingest` import these; only the DataFrame side of the journal needs Spark.
WITHOUT_SPARK = [
    name
    for name in MODULES
    if name.startswith(("penstock.journal", "penstock.receivers", "penstock.storage"))
    if name != "penstock.journal.spark"
]


def reading_order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that ruff keeps (RUF022)."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist_once_and_in_order(name: str) -> None:
    module = importlib.import_module(name)
    public: list[str] = getattr(module, "__all__", [])

    assert [each for each in public if not hasattr(module, each)] == []
    assert public == sorted(set(public), key=reading_order)


def test_what_runs_in_workers_imports_no_pyspark() -> None:
    program = f"import sys, {', '.join(WITHOUT_SPARK)}; sys.exit('pyspark' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == 0, "importing receivers, journal or storage imports pyspark"

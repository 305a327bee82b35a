from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

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

ROOT = Path(__file__).parents[1]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
DOCS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FULL_NAME = re.compile(r"(?<![\w.])penstock(?:\.\w+)+")
SHORT_NAME = re.compile(
    r"`((?:checkpoint|driver|journal|rate|receivers|state|streaming)(?:\.\w+)+)`"
)
"""What docs/architecture.md calls modules: their path within the package."""
KEYS = {"penstock.crc", "penstock.position"}
"""In the footer of a block, so no names."""
LOGGERS = {"penstock.CheckpointFileManager", "penstock.OffsetSeqMetadata"}
"""Named after classes of Spark's, whose messages they have."""


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, _, inner = name, "", ""
    while module not in MODULES:
        module, _, last = module.rpartition(".")
        inner = f"{last}.{inner}".rstrip(".")
    found: object = importlib.import_module(module)
    for part in filter(None, inner.split(".")):
        found = getattr(found, part, None)
    return found is not None


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


def test_what_runs_in_workers_imports_neither_pyspark_nor_pandas() -> None:
    """Each takes about as long to import as all of receivers, journal and storage together."""
    imported = f"import sys, {', '.join(WITHOUT_SPARK)}"
    program = f"{imported}; sys.exit('pyspark' in sys.modules or 'pandas' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == 0, "importing receivers, journal or storage imports one of them"


def test_names_that_texts_mention_exist() -> None:
    unknown = []
    for path in [*DOCS, *SOURCES]:
        text = path.read_text(encoding="utf-8")
        names = set(FULL_NAME.findall(text)) - KEYS - LOGGERS
        if path.name == "architecture.md":
            names |= {f"penstock.{name}" for name in SHORT_NAME.findall(text)}
        unknown += [(path.name, name) for name in sorted(names) if not exists(name)]
    assert unknown == []

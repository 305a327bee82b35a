"""docs/settings.md has every setting that the code reads, with the default that the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.conf import MetricsSettings, RateSettings, StreamingSettings, UiSettings

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
PAGE = "docs/settings.md"
_NAME = re.compile(r"spark\.[a-z]\w*(\.\w+)+")
_NO_READERS = {
    "batched/program.py",
    "checkpoint/tools/changes/state_back.py",
    "streaming/core/recorded_conf.py",
    "streaming/recovery/saved_conf.py",
    "structured/sinks/batch.py",
}
"""Modules with names of settings that they set, record, leave out or find in checkpoints, or of
properties that Spark sets in a thread."""


class Row(NamedTuple):
    default: str
    unit: str
    meaning: str
    module: str


def page_rows() -> dict[str, Row]:
    """Return the page's tables by the names of their settings."""
    rows = re.findall(r"^\| `(spark\.[\w.]+)` \|(.+)\|$", (ROOT / PAGE).read_text(), re.M)
    names = [name for name, _ in rows]
    assert len(names) == len(set(names)), f"{PAGE} has a setting twice"
    return {name: Row(*(cell.strip(" `") for cell in rest.split(" | "))) for name, rest in rows}


def declared() -> Iterator[tuple[str, Field[Any]]]:
    for kind in (RateSettings, MetricsSettings, StreamingSettings, UiSettings):
        for each in fields(kind):
            for name in each.metadata.get("names", ()):
                yield name, each


def names_in(source: str) -> set[str]:
    """Return the names of settings that stand in a module by themselves, as code uses them."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and _NAME.fullmatch(text)}


def test_every_setting_that_the_code_reads_has_its_line() -> None:
    known = set(page_rows()) | set(re.findall(r"`(spark\.penstock\.\w+)`", _not_settings()))
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if module not in _NO_READERS:
            missing = sorted(names_in(path.read_text()) - known)
            assert not missing, (
                f"{module} reads {', '.join(missing)}: add a line for each to a table of {PAGE} "
                "(setting, default, unit, meaning, module that acts on it)"
            )


def test_no_line_is_about_a_setting_that_is_gone() -> None:
    read = {name for path in SOURCE.rglob("*.py") for name in names_in(path.read_text())}
    assert sorted(set(page_rows()) - read) == [], f"{PAGE} lists what no code reads"


@pytest.mark.parametrize(("name", "each"), [pytest.param(*pair, id=pair[0]) for pair in declared()])
def test_a_line_says_the_default_and_the_module_that_reads(name: str, each: Field[Any]) -> None:
    rows = page_rows()
    assert name in rows, f"{PAGE} has no line for {name}: add one to one of its tables"
    row = rows[name]
    assert row.meaning
    assert row.unit
    if each.default is None:
        assert row.default == "none" or " " in row.default
    else:
        assert each.metadata["parse"](name, row.default) == each.default
    reader = (SOURCE / row.module).read_text()
    wanted = "first_rate" if each.name in ("backpressure_enabled", "initial_rate") else each.name
    assert f".{wanted}" in reader, f"{row.module} does not use {each.name}, which is {name}"


def _not_settings() -> str:
    return (ROOT / PAGE).read_text().partition("## Not settings")[2]

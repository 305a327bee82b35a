"""The core can be read in an afternoon: the files that docs/architecture.md names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MOST = 5000


def section() -> str:
    (found,) = re.findall(r"## Read the core in an afternoon\n(.*?)\n## ", PAGE, re.DOTALL)
    return str(found)


def stated() -> dict[str, int]:
    return {path: int(lines) for path, lines in re.findall(r"\| `(.*?)` \| (\d+) \|", section())}


def actual() -> dict[str, int]:
    files = {path: ROOT / "src" / "penstock" / path for path in stated()}
    return {path: len(file.read_text().splitlines()) for path, file in files.items()}


def test_the_files_are_read_in_an_afternoon() -> None:
    assert next(iter(stated())) == "checkpoint/batch_life.py"
    total = sum(actual().values())
    assert total <= MOST, (
        f"{total} lines: shorten one of the files, or move what is not the main path"
    )


def test_what_is_stated_adds_up() -> None:
    parts = [int(lines) for lines in re.findall(r"\*\* \| \*\*(\d+)\*\* \|", section())]
    (total,) = re.findall(r"committed: ([\d,]+) lines", section())
    assert int(total.replace(",", "")) == sum(parts) == sum(stated().values())


def test_what_is_stated_is_about_so() -> None:
    """Small changes of a file need no change of the page."""
    found = actual()
    off = {path: found[path] for path, lines in stated().items() if abs(found[path] - lines) > 100}
    assert not off, f"docs/architecture.md states other counts for {off}"

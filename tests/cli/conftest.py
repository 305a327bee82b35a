"""What tests of ``penstock journal`` run over."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """The path of a program's journal; commands that are printed have to quote it."""
    return str(tmp_path / "a program" / "journal")


@pytest.fixture
def lines(journal: str) -> JournalStream:
    """A stream of text in it, without a block."""
    return JournalStream.create(open_storage(journal), "lines", RecordFormat("string"))

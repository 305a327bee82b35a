"""Fixtures of the journal's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.journal import JournalStream, RecordFormat
from penstock.storage import Storage, open_storage
from tests.journal.helpers import clear_memory

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "journal")


@pytest.fixture
def stream(storage: Storage) -> JournalStream:
    return JournalStream.create(storage, "lines", RecordFormat("string"))


@pytest.fixture(autouse=True)
def _clear_memory() -> Iterator[None]:
    yield
    clear_memory()


@pytest.fixture(scope="session")
def spark(sc: SparkContext) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(sc)

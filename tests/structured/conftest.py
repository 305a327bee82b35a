"""A stream and a query over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage
from tests.structured.queries import Query


@pytest.fixture
def spark(sc: SparkContext) -> SparkSession:
    return SparkSession.builder.getOrCreate()


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    return JournalStream.create(open_storage(tmp_path / "j"), "clicks", RecordFormat("string"))


@pytest.fixture
def query(spark: SparkSession, stream: JournalStream, tmp_path: Path) -> Query:
    return Query(spark, stream, tmp_path / "checkpoint")

"""An entry of Spark's logs in which a byte was altered: what Spark does with it, and the way on.

The soak test runs this on each version of Spark that penstock knows.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.tools import (
    apply_plan,
    inspect,
    plan_rewind,
    validate,
)
from penstock.checkpoint.tools.checks.checksums import UNCHECKED
from penstock.errors import CheckpointError
from tests.cli.commands import Commands

pytestmark = pytest.mark.spark
CHECKPOINT = Commands("checkpoint", columns=300)


class Query:
    """A query over files: a batch for each."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._inputs = folder / "in"
        self._inputs.mkdir()
        self.location = folder / "query"
        self.seen: Counter[int] = Counter()

    def add(self, number: int) -> None:
        (self._inputs / f"{number}.json").write_text(json.dumps({"n": number}))

    def run(self) -> None:
        def write(batch: DataFrame, _: int) -> None:
            self.seen.update(row.n for row in batch.collect())

        source = self._session.readStream.schema("n int").option("maxFilesPerTrigger", 1)
        writer = source.json(str(self._inputs)).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.location)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()


@pytest.fixture
def query(sc: SparkContext, tmp_path: Path) -> Query:
    """Four batches, of which the newest one's entry says that it ended where the third one did."""
    query = Query(SparkSession(sc), tmp_path)
    for number in range(4):
        query.add(number)
    query.run()
    assert query.seen == Counter(range(4))
    entry = query.location / "offsets/3"
    assert entry.with_name(".3.crc").exists()
    before = entry.read_text()
    assert before.endswith('{"logOffset":3}')
    entry.write_text(before.replace('{"logOffset":3}', '{"logOffset":2}'))
    return query


def test_spark_reads_it_unchecked(query: Query) -> None:
    """As `validate` says: a record twice, without a word."""
    (finding,) = validate(query.location).findings
    assert (finding.severity, finding.path) == ("error", "offsets/3")
    assert finding.meaning == UNCHECKED
    assert f"checkpoint rewind file://{query.location} --to-batch 2 --apply" in finding.fix
    query.run()
    assert (query.seen.total(), len(query.seen)) == (5, 4)


def test_there_is_a_way_on_without_a_backup(query: Query) -> None:
    problem = inspect(query.location).next.problem
    assert problem is not None
    assert problem.startswith("offsets/3 does not fit its checksum")
    assert CHECKPOINT.run("inspect", str(query.location)).exit_code == 2
    apply_plan(plan_rewind(query.location, to_batch=2))
    assert inspect(query.location).next.problem is None
    assert [each.severity for each in validate(query.location).findings] == ["warning"]
    query.add(4)
    query.run()
    assert (query.seen.total(), len(query.seen)) == (6, 5)  # the batch's record is read again


def test_it_is_refused_as_a_point_to_go_back_to(query: Query) -> None:
    with pytest.raises(CheckpointError, match=r"offsets/3: it does not fit its checksum"):
        plan_rewind(query.location, to_batch=3)

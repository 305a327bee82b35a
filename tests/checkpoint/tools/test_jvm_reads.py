"""Spark reads what the tools write: metadata, both logs, sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.tools import apply_fork, apply_plan, inspect, plan_fork, plan_rewind

from .queries import write_stateless

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def test_spark_reads_what_the_tools_write(sc: SparkContext, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    query = write_stateless(tmp_path / "query", batches=5)
    apply_plan(plan_rewind(query, to_batch=2))
    place = tmp_path / "copy"
    apply_fork(plan_fork(query, place))

    jvm: Any = sc._jvm
    session: Any = SparkSession(sc)._jsparkSession
    streaming = jvm.org.apache.spark.sql.execution.streaming
    path = jvm.org.apache.hadoop.fs.Path(str(place / "metadata"))
    hadoop_conf: Any = sc._jsc.hadoopConfiguration()
    assert streaming.runtime.StreamMetadata.read(path, hadoop_conf).get().id() == inspect(place).id
    offsets = streaming.checkpointing.OffsetSeqLog(session, str(place / "offsets"), False)
    commits = streaming.checkpointing.CommitLog(session, str(place / "commits"), False)
    assert (offsets.getLatest().get()._1(), commits.getLatest().get()._1()) == (6, 6)
    assert offsets.getLatest().get()._2().offsets().head().get().json() == '{"logOffset":2}'
    files = streaming.runtime.FileStreamSourceLog(1, session, str(place / "sources/0"))
    assert [each.batchId() for each in files.allFiles()] == [0, 1, 2, 3, 4]

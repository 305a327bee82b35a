"""Spark reads what the tools write: metadata, both logs, sources, the log of a file sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.tools import (
    apply_fork,
    apply_import,
    apply_plan,
    export_location,
    inspect,
    plan_fork,
    plan_import,
    plan_rewind,
)

from .queries import write_stateless
from .test_sink_log import batches_named, write_sink

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("copy", ["import", "fork"])
def test_spark_reads_what_the_tools_write(sc: SparkContext, tmp_path: Path, copy: str) -> None:
    from pyspark.sql import SparkSession

    query = write_stateless(tmp_path / "query", batches=5)
    apply_plan(plan_rewind(query, to_batch=2), stopped=True)
    place = tmp_path / "copy"
    if copy == "import":
        apply_import(plan_import(export_location(query), place))
    else:
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


def test_spark_reads_the_log_of_a_sink_that_was_taken_back(
    sc: SparkContext, tmp_path: Path
) -> None:
    from pyspark.sql import SparkSession

    query = write_stateless(tmp_path / "query", batches=5)
    output = write_sink(query)
    apply_plan(plan_rewind(query, to_batch=2, sink=output), stopped=True)

    jvm: Any = sc._jvm
    session: Any = SparkSession(sc)._jsparkSession
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    nothing = jvm.scala.Option.apply(None)
    log = sinks.FileStreamSinkLog(1, session, str(output / "_spark_metadata"), nothing)
    assert log.getLatestBatchId().get() == inspect(query).next.first - 1
    assert [each.path() for each in log.allFiles()] == batches_named(0, 1, 2)

"""The settings of a location's first batch replace the session's at a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.checkpoint import CheckpointLocation
from penstock.errors import RecoveryMismatchError
from penstock.streaming import StreamingContext
from penstock.streaming.core.recorded_conf import _RELEVANT, settle_conf
from penstock.streaming.core.session_conf import SessionConf
from tests.streaming.runs import Runs

pytestmark = pytest.mark.spark
SHUFFLE = "spark.sql.shuffle.partitions"
LOGGER = "penstock.OffsetSeqMetadata"


@pytest.fixture
def session(sc: SparkContext) -> Iterator[SparkSession]:
    session = SparkSession.builder.getOrCreate()
    yield session
    for name in (SHUFFLE, *_RELEVANT):
        session.conf.unset(name)
    session.conf.set(SHUFFLE, "2")


@pytest.fixture
def no_session(sc: SparkContext) -> Iterator[None]:
    """Lets the Spark of the tests be one in which no session was started."""
    sessions: Any = sc._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getDefaultSession()
    sessions.clearDefaultSession()
    yield
    if before.isDefined():
        sessions.setDefaultSession(before.get())


class Program(Runs):
    """A program of one batch a run."""

    def run(
        self, define: Callable[[Any], Any] = lambda stream: stream, interval: float = 1
    ) -> dict[str, str]:
        """Run a batch; return the conf in its entry."""

        def count(ssc: StreamingContext) -> None:
            define(ssc.queueStream([[("a", 1)]])).foreachRDD(lambda rdd: rdd.count())

        with self.running_program(count, interval) as stepper:
            stepper.step()
        newest = CheckpointLocation(self.location).offsets.latest()
        assert newest is not None
        return dict(newest[1].conf)


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "location")


def updates(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == LOGGER and r.levelname == "WARNING"]


def test_the_first_batch_records_what_spark_records(
    program: Program, session: SparkSession
) -> None:
    session.conf.set(SHUFFLE, "10")
    conf = program.run()
    sc: Any = session.sparkContext
    spark_s = getattr(
        sc._jvm.org.apache.spark.sql.execution.streaming.checkpointing, "OffsetSeqMetadata$"
    )
    recorded = getattr(spark_s, "MODULE$").confsForOffsetLog(session._jsparkSession.conf())
    names = set(sc._jvm.scala.jdk.javaapi.CollectionConverters.asJava(recorded))
    assert names <= set(conf)
    assert set(_RELEVANT) <= names
    assert conf[SHUFFLE] == "10"
    assert conf["spark.sql.streaming.multipleWatermarkPolicy"] == "min"
    assert conf["spark.penstock.batchIntervalMs"] == "1000"


def test_a_restart_overwrites_the_session_s(
    program: Program, session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    version = "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"
    session.conf.set(SHUFFLE, "200")
    program.run()
    assert updates(caplog) == []
    session.conf.set(SHUFFLE, "10")
    session.conf.set(version, "1")
    conf = program.run()
    assert updates(caplog) == [
        f"Updating the value of conf '{SHUFFLE}' in current session from '10' to '200'.",
        f"Updating the value of conf '{version}' in current session from '1' to '2'.",
    ]
    assert (session.conf.get(SHUFFLE), session.conf.get(version)) == ("200", "2")
    assert (conf[SHUFFLE], conf[version]) == ("200", "2")


@pytest.mark.usefixtures("no_session")
def test_without_a_session_the_next_one_gets_them(
    sc: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    try:
        settled = settle_conf(sc, {policy: "max", SHUFFLE: "2"}, 1000)
        assert updates(caplog) == [
            f"Updating the value of conf '{policy}' in current session from 'min' to 'max'."
        ]
        assert settled[policy] == SessionConf(sc).get(policy) == sc.getConf().get(policy) == "max"
        next_session = sc._jvm.org.apache.spark.sql.classic.SparkSession(sc._jsc.sc(), {})
        assert next_session.conf().get(policy) == "max"
    finally:
        sc._conf._jconf.remove(policy)


def test_a_setting_that_an_entry_lacks_stays_the_session_s(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark would fall back to version 1 for its own queries, which may share the session."""
    caplog.set_level(logging.INFO, LOGGER)
    name = "spark.sql.streaming.aggregation.stateFormatVersion"
    settled = settle_conf(session.sparkContext, {"spark.penstock.zeroTimeMs": "0"}, 1000)
    assert settled[name] == session.conf.get(name) == "2"
    said = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    assert said == [
        f"Conf '{name}' was not found in the offset log. Using existing session conf value '2'."
    ]
    assert updates(caplog) == []


def test_a_value_that_this_spark_does_not_accept_is_refused(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    name = "spark.sql.streaming.aggregation.stateFormatVersion"
    with pytest.raises(RecoveryMismatchError, match=f"{name}=7, which .* not accept; it has 2"):
        settle_conf(session.sparkContext, {name: "7"}, 1000)
    assert session.conf.get(name) == "2"
    assert updates(caplog) == []


def test_a_setting_that_this_spark_does_not_know_has_no_value(sc: SparkContext) -> None:
    assert SessionConf(sc).get("spark.sql.no.such.setting") is None


def test_a_changed_batch_interval_is_told(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.run()
    assert program.run(interval=2)["spark.penstock.batchIntervalMs"] == "2000"
    assert len(updates(caplog)) == 1
    assert "was 1000 ms and is 2000 ms" in updates(caplog)[0]

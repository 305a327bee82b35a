"""A path without a scheme is where Hadoop says, unless that is the local file system."""

from __future__ import annotations

import getpass
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.driver.spark import hadoop_location
from penstock.errors import ConfigError
from penstock.streaming import StreamingContext

pytestmark = pytest.mark.spark

_NAME_NODE = "hdfs://127.0.0.1:1"


@pytest.fixture
def on_hdfs(sc: SparkContext) -> Iterator[None]:
    conf = sc._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    conf.set("fs.defaultFS", _NAME_NODE)
    yield
    conf.set("fs.defaultFS", "file:///")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/data/words", f"{_NAME_NODE}/data/words"),
        ("words", f"{_NAME_NODE}/user/{getpass.getuser()}/words"),
        ("hdfs:///data", f"{_NAME_NODE}/data"),
        ("hdfs:/data", f"{_NAME_NODE}/data"),
        ("hdfs://other:8020/data", "hdfs://other:8020/data"),
        ("file:///data", "file:///data"),
        ("s3://bucket/data", "s3://bucket/data"),
    ],
)
def test_what_a_path_means(
    on_hdfs: None, path: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        assert hadoop_location(path) == url
    assert (f"Location {path} is {url}" in caplog.text) == (path != url)


def test_locally_it_is_left_as_it_is(sc: SparkContext) -> None:
    assert [hadoop_location(path) for path in ("/data", "data")] == ["/data", "data"]


def test_a_program_goes_there(
    on_hdfs: None, sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("penstock.storage.hdfs")
    monkeypatch.setattr(client, "_FIRST_S", 0.1)
    with pytest.raises(ConfigError, match=rf"{_NAME_NODE}/data/words.*does not answer"):
        StreamingContext(sc, 1).checkpoint("/data/words")
    with pytest.raises(ConfigError, match=rf"{_NAME_NODE}/data/words.*does not answer"):
        StreamingContext.getOrCreate("/data/words", lambda: StreamingContext(sc, 1))


def test_spark_submit_is_asked_before_there_is_a_context(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "from penstock.driver.spark import hadoop_location\n"
        "print('it is', hadoop_location('/data/words'))\n"
    )
    command = [sys.executable, "-m", "pyspark.find_spark_home"]
    home = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    submit = [f"{home}/bin/spark-submit", "--conf", f"spark.hadoop.fs.defaultFS={_NAME_NODE}"]
    done = subprocess.run([*submit, str(job)], capture_output=True, text=True, env=dict(os.environ))
    assert f"it is {_NAME_NODE}/data/words" in done.stdout, done.stderr[-2000:]

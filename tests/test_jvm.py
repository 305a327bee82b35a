"""The JVMs of the tests take Spark's classes out of an archive."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyspark import SparkContext


@pytest.mark.spark
def test_spark_uses_the_archive_of_classes(sc: SparkContext) -> None:
    archives = re.findall(r'-XX:SharedArchiveFile=([^"]+)', os.environ["JAVA_TOOL_OPTIONS"])
    maps = Path(f"/proc/{sc._gateway.proc.pid}/maps")
    if not archives or not maps.exists():
        pytest.skip("this Java makes no archive, or this system does not tell what it uses")
    assert archives[0] in maps.read_text()

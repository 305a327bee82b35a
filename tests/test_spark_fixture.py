from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def describe_worker(_: int) -> tuple[str, str]:
    import penstock

    return sys.executable, penstock.__version__


def test_workers_run_this_python_and_see_penstock(sc: SparkContext) -> None:
    import penstock

    described = sc.parallelize(range(2), 2).map(describe_worker).collect()

    assert set(described) == {(sys.executable, penstock.__version__)}


def test_driver_listens_on_loopback_only(sc: SparkContext) -> None:
    assert sc.getConf().get("spark.driver.host") == "127.0.0.1"
    assert sc.uiWebUrl is None


def test_jvm_reads_its_classes_from_the_archive(sc: SparkContext) -> None:
    archive = re.search(r'"-XX:SharedArchiveFile=(.+?)"', os.environ["JAVA_TOOL_OPTIONS"])
    maps = Path("/proc", str(sc._gateway.proc.pid), "maps")
    if archive is None or not maps.exists():
        pytest.skip("this Java makes no archive, or this system does not tell what is mapped")
    assert archive[1] in maps.read_text()

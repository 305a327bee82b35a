from __future__ import annotations

import sys
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

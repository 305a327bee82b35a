"""What tasks learn of their input; see test_kafka_output.py, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import SparkContext

from penstock.workers import whole_input

pytestmark = pytest.mark.spark


def test_an_input_that_cannot_be_told_from_one_that_was_cut_off_is_refused(
    sc: SparkContext,
) -> None:
    def task(numbers: Iterable[int]) -> Iterator[str]:
        # As in a PySpark whose worker is another one: its function is not on this thread's stack.
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(list, whole_input(numbers)).exception()
        yield f"{len(list(whole_input([1, 2])))} {error}"

    (told,) = sc.parallelize([1], 1).mapPartitions(task).collect()
    assert told.startswith("2 this version of PySpark does not show")

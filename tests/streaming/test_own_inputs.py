"""Inputs of a program's own: the constant one, and those of docs/own-inputs.md as they stand."""

from __future__ import annotations

import pickle
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.errors import ConfigError, StreamingError
from penstock.streaming import ConstantInputDStream, ReceiverInputDStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs
from tests.waiting import eventually

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "own-inputs.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's programs define."""
    found: dict[str, Any] = {"__name__": "own_inputs"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(code, found)
    return found


def insert(database: Path, *items: str) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT)")
        db.executemany("INSERT INTO orders (item) VALUES (?)", [(item,) for item in items])


def test_a_table(runs: Runs, page: dict[str, Any], tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    seen: list[Any] = []

    def define(ssc: StreamingContext) -> None:
        orders = page["TableInput"](ssc, str(database), name="orders")
        orders.map(lambda row: row[1]).foreachRDD(lambda rdd: seen.append(rdd.collect()))

    insert(database, "apple", "pear")
    with runs.running_program(define) as stepper:
        stepper.step()
        insert(database, "plum")
        stepper.step()
    assert [info.num_records for info in stepper.completed] == [2, 1]
    insert(database, "fig")
    with runs.running_program(define) as stepper:
        stepper.step(2)
    assert seen == [["apple", "pear"], ["plum"], ["fig"], []]


def test_a_receiver_s_stream(
    ssc: StreamingContext, clock: ManualClock, page: dict[str, Any]
) -> None:
    seen: list[str] = []
    stream = page["GreeterStream"](ssc, ["hello", "again"])
    assert stream.name == "greeter-0"
    stream.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    assert eventually(lambda: bool(stepper.step()) and len(seen) == 2)
    assert seen == ["hello", "again"]


def test_a_receiver_s_stream_without_a_receiver_is_refused(ssc: StreamingContext) -> None:
    with pytest.raises(ConfigError, match="has no receiver"):
        ReceiverInputDStream(ssc)
    for wrong in ("a receiver", [1]):
        with pytest.raises(ConfigError, match="is not a receiver"):
            ssc.receiverStream(wrong)  # type: ignore[arg-type]
    assert ssc.graph.inputs == []


def test_a_constant_is_in_every_batch(
    sc: SparkContext, ssc: StreamingContext, clock: ManualClock
) -> None:
    seen: list[Any] = []
    prices = ConstantInputDStream(ssc, sc.parallelize([("apple", 3)]))
    orders = ssc.queueStream([[("apple", 1)], [], [("apple", 2), ("fig", 1)]])
    orders.join(prices, 1).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(3)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert seen == [[("apple", (1, 3))], [], [("apple", (2, 3))]]


def test_a_constant_is_an_rdd(ssc: StreamingContext) -> None:
    with pytest.raises(ConfigError, match="is not an RDD"):
        ConstantInputDStream(ssc, [1])  # type: ignore[arg-type]


def test_a_constant_says_that_it_is_gone_after_a_graph_checkpoint(
    sc: SparkContext, ssc: StreamingContext
) -> None:
    stream = pickle.loads(pickle.dumps(ConstantInputDStream(ssc, sc.parallelize([1]))))
    with pytest.raises(StreamingError, match="lost with its process"):
        stream.compute_range(None)

"""What cannot be kept in a graph checkpoint fails at start, by name."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.receivers import Receiver
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.testing import ManualClock

pytestmark = pytest.mark.spark


def ignore(rdd: Any) -> None:
    """An output that does nothing."""


@pytest.fixture
def ssc(sc: SparkContext, tmp_path: Path) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
    ssc.checkpoint(str(tmp_path))
    yield ssc
    ssc.stop(stopSparkContext=False)


class Client:
    """What a user's program may hold: a connection with a lock somewhere in it."""

    def __init__(self) -> None:
        self.pool = {"locks": [threading.Lock()]}

    def send(self, rdd: Any) -> None:
        pass


# Functions of a module pickle by name; those of a user's main program by value, as these do.


def with_closure(ssc: StreamingContext, source: DStream) -> None:
    lock = threading.Lock()
    source.map(lambda x: (lock, x)).foreachRDD(ignore)


def with_nested_closure(ssc: StreamingContext, source: DStream) -> None:
    client = Client()

    def helper(x: Any) -> Any:
        return client

    source.filter(lambda x: helper(x)).foreachRDD(ignore)


def with_default(ssc: StreamingContext, source: DStream) -> None:
    def save(rdd: Any, *, ready: Any = threading.Event()) -> None:  # noqa: B008
        pass

    source.foreachRDD(save)


def with_bound_object(ssc: StreamingContext, source: DStream) -> None:
    source.foreachRDD(Client().send)


def with_partial(ssc: StreamingContext, source: DStream) -> None:
    source.foreachRDD(partial(lambda rdd, to: None, to=Client()))


def with_global(ssc: StreamingContext, source: DStream) -> None:
    names: dict[str, Any] = {"events": threading.Event()}
    exec("def save(rdd):\n    return [events for _ in rdd]", names)
    source.foreachRDD(names["save"])


def with_receiver(ssc: StreamingContext, source: DStream) -> None:
    class Locked(Receiver):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def onStart(self) -> None:
            pass

        def onStop(self) -> None:
            pass

    ssc.receiverStream(Locked(), name="mine").foreachRDD(ignore)


def with_spark_context(ssc: StreamingContext, source: DStream) -> None:
    sc = ssc.sparkContext
    source.foreachRDD(lambda rdd: rdd.union(sc.emptyRDD()))


def with_spark_session(ssc: StreamingContext, source: DStream) -> None:
    spark = SparkSession.builder.getOrCreate()
    source.foreachRDD(lambda rdd: spark.createDataFrame(rdd))


def with_streaming_context(ssc: StreamingContext, source: DStream) -> None:
    source.foreachRDD(lambda rdd: ssc.stop())


def with_rdd(ssc: StreamingContext, source: DStream) -> None:
    static = ssc.sparkContext.parallelize([(1, 2)])
    source.transform(lambda rdd: rdd.join(static)).foreachRDD(ignore)


def with_broadcast(ssc: StreamingContext, source: DStream) -> None:
    words = ssc.sparkContext.broadcast({"a"})
    source.flatMap(lambda x: words.value).foreachRDD(ignore)


def with_accumulator(ssc: StreamingContext, source: DStream) -> None:
    seen = ssc.sparkContext.accumulator(0)
    source.foreachRDD(lambda rdd: seen.add(rdd.count()))


def with_window(ssc: StreamingContext, source: DStream) -> None:
    lock = threading.Lock()
    reduced = source.reduceByKeyAndWindow(max, lambda a, b: lock, 5, 1)
    reduced.foreachRDD(ignore)


@pytest.mark.parametrize(
    ("define", "operation", "variable", "kind"),
    [
        (with_closure, "map", "closure variable 'lock'", "a _thread.lock"),
        (
            with_nested_closure,
            "filter",
            r"closure variable 'helper', function helper \(.*test_pickling.py:\d+\), closure "
            "variable 'client', attribute 'pool', key 'locks', item 0",
            "a _thread.lock",
        ),
        (
            with_default,
            "foreachRDD",
            "default argument 'ready', attribute '_cond', attribute '_lock'",
            "a _thread.lock",
        ),
        (
            with_bound_object,
            "foreachRDD",
            r"method Client\.send, its object, attribute 'pool', key 'locks', item 0",
            "a _thread.lock",
        ),
        (
            with_partial,
            "foreachRDD",
            "argument 'to', attribute 'pool', key 'locks', item 0",
            "a _thread.lock",
        ),
        (
            with_global,
            "foreachRDD",
            "global 'events', attribute '_cond', attribute '_lock'",
            "a _thread.lock",
        ),
        (with_receiver, "input mine", "given, attribute 'lock'", "a _thread.lock"),
        (with_spark_context, "foreachRDD", "closure variable 'sc'", "a .*SparkContext"),
        (with_spark_session, "foreachRDD", "closure variable 'spark'", "a .*SparkSession"),
        (with_streaming_context, "foreachRDD", "closure variable 'ssc'", "a .*StreamingContext"),
        (with_rdd, "transform", "closure variable 'static'", "a .*RDD"),
        (with_broadcast, "flatMap", "closure variable 'words'", "a .*Broadcast"),
        (with_accumulator, "foreachRDD", "closure variable 'seen'", "a .*Accumulator"),
        (with_window, "reduceByKeyAndWindow", "closure variable 'lock'", "a _thread.lock"),
    ],
)
def test_start_names_the_operation_and_the_variable(
    ssc: StreamingContext,
    define: Callable[[StreamingContext, DStream], None],
    operation: str,
    variable: str,
    kind: str,
) -> None:
    define(ssc, ssc.queueStream([[(1, 2)]]))
    with pytest.raises(ConfigError) as caught:
        ssc.start()
    assert caught.value.operation == operation
    assert re.search(rf"(^|, ){variable}$", caught.value.ids["variable"])
    assert re.search(
        rf"^{operation} cannot be kept in the graph checkpoint: .*{variable} is {kind}, which",
        caught.value.message,
    )
    assert StreamingContext.getActive() is None


@pytest.mark.parametrize("how", ["program", "no location"])
def test_nothing_is_pickled_where_no_graph_is_kept(
    sc: SparkContext, tmp_path: Path, how: str
) -> None:
    def create() -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
        with_closure(ssc, ssc.queueStream([[1]]))
        return ssc

    if how == "program":
        ssc = StreamingContext.getOrCreate(str(tmp_path), create, recover="program")
    else:
        ssc = create()
    ssc.start()
    ssc.stop(stopSparkContext=False)


def test_a_long_chain_of_operations_can_be_kept(ssc: StreamingContext) -> None:
    source: DStream = ssc.queueStream([[1]])
    for _ in range(500):
        source = source.map(abs)
    source.foreachRDD(ignore)
    graph = pickle_graph(ssc.graph).load()
    assert sum(1 for _ in graph.streams()) == 501


def test_streams_that_share_an_object_still_share_it_when_read_back(ssc: StreamingContext) -> None:
    seen: list[int] = []
    source = ssc.queueStream([[1]])
    source.foreachRDD(lambda rdd: seen.append(1))
    source.foreachRDD(lambda rdd: seen.append(2))
    first, second = pickle_graph(ssc.graph).load().outputs
    first.func(None)
    second.func(None)
    assert first.func.__closure__[0].cell_contents == [1, 2]  # type: ignore[attr-defined]
    assert seen == []

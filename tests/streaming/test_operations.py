"""Operations on streams, batch by batch, on a manual clock."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark import RDD, SparkContext, cloudpickle

from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

pytestmark = pytest.mark.spark

Batches = list[list[Any]]


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
    yield ssc
    ssc.stop(stopSparkContext=False)


def run(ssc: StreamingContext, stream: DStream, batches: int) -> Batches:
    """Run a stream's batches; return the records of each."""
    seen: Batches = []
    stream.foreachRDD(lambda rdd: seen.append(rdd.collect()))
    clock = ssc._clock
    assert isinstance(clock, ManualClock)
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(batches)
    return seen


WORDS = [["a b", "b"], [], ["b c"]]

CASES: list[tuple[str, Callable[[DStream], DStream], Batches]] = [
    ("map", lambda s: s.map(str.upper), [["A B", "B"], [], ["B C"]]),
    ("flatMap", lambda s: s.flatMap(str.split), [["a", "b", "b"], [], ["b", "c"]]),
    ("filter", lambda s: s.filter(lambda x: " " in x), [["a b"], [], ["b c"]]),
    (
        "mapPartitions",
        lambda s: s.mapPartitions(lambda lines: [len(list(lines))]).filter(bool),
        [[1, 1], [], [1]],
    ),
    ("count", lambda s: s.count(), [[2], [0], [1]]),
    (
        "reduceByKey",
        lambda s: (
            s.flatMap(str.split)
            .map(lambda w: (w, 1))
            .reduceByKey(operator.add, 1)
            .transform(lambda rdd: rdd.sortByKey(numPartitions=1))
        ),
        [[("a", 1), ("b", 2)], [], [("b", 1), ("c", 1)]],
    ),
    (
        "mapValues",
        lambda s: s.map(lambda x: (x, 1)).mapValues(lambda n: n + 1),
        [[("a b", 2), ("b", 2)], [], [("b c", 2)]],
    ),
    ("union", lambda s: s.union(s.map(str.upper)), [["a b", "b", "A B", "B"], [], ["b c", "B C"]]),
    ("transform", lambda s: s.transform(lambda rdd: rdd.distinct().sortBy(str)), WORDS),
]


@pytest.mark.parametrize(
    ("operation", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_operation(
    ssc: StreamingContext, operation: Callable[[DStream], DStream], expected: Batches
) -> None:
    source = ssc.queueStream([ssc.sparkContext.parallelize(w, 2) for w in WORDS])
    assert run(ssc, operation(source), 3) == expected


def test_transform_with_time_gets_the_batch_time(ssc: StreamingContext) -> None:
    source = ssc.queueStream([[1], [2]])
    timed = source.transform(lambda time, rdd: rdd.map(lambda x: (time, x)))
    start = datetime.fromtimestamp(1000)  # noqa: DTZ006 (as PySpark hands it out)
    first, second = run(ssc, timed, 2)
    assert [(t - start).total_seconds() for t, _ in first + second] == [1, 2]


def test_transform_over_several_streams(ssc: StreamingContext) -> None:
    left, right = ssc.queueStream([[1], [2]]), ssc.queueStream([[10], [20]])
    both = ssc.transform([left, right], lambda rdds: rdds[0].union(rdds[1]))
    assert run(ssc, both, 2) == [[1, 10], [2, 20]]


def test_union_of_several_streams(ssc: StreamingContext) -> None:
    streams = [ssc.queueStream([[n]]) for n in range(3)]
    assert run(ssc, ssc.union(*streams), 2) == [[0, 1, 2], []]


def test_queue_all_at_once_then_the_default(ssc: StreamingContext) -> None:
    source = ssc.queueStream([[1], [2]], oneAtATime=False, default=[9])
    assert run(ssc, source, 2) == [[1, 2], [9]]


def test_foreach_rdd_with_time(ssc: StreamingContext) -> None:
    times: list[datetime] = []

    def note(time: datetime, rdd: RDD[int]) -> None:
        times.append(time)

    source = ssc.queueStream([[1]])
    source.foreachRDD(note)
    run(ssc, source, 2)
    assert (times[1] - times[0]).total_seconds() == 1


def test_pprint_prints_as_pyspark_does(
    ssc: StreamingContext, capfd: pytest.CaptureFixture[str]
) -> None:
    source = ssc.queueStream([["a", "b", "c"]])
    source.pprint(2)
    run(ssc, source, 1)
    rule = "-" * 43
    time = datetime.fromtimestamp(1001)  # noqa: DTZ006 (as PySpark prints it)
    assert capfd.readouterr().out == f"{rule}\nTime: {time}\n{rule}\na\nb\n...\n\n"


def test_a_stream_used_twice_is_computed_once_a_batch(ssc: StreamingContext) -> None:
    calls: list[int] = []

    def counted(rdd: RDD[Any]) -> RDD[Any]:
        calls.append(1)
        return rdd

    shared = ssc.queueStream([[1], [2]]).transform(counted)
    shared.foreachRDD(lambda rdd: rdd.count())
    assert run(ssc, shared.map(lambda x: x + 1), 2) == [[2], [3]]
    assert len(calls) == 2


def test_old_batches_are_forgotten(ssc: StreamingContext) -> None:
    source = ssc.queueStream([[n] for n in range(20)])
    run(ssc, source, 20)
    ssc.stop(stopSparkContext=False)
    assert len(source._generated) <= 1


def test_the_graph_pickles_without_its_context(ssc: StreamingContext) -> None:
    offset = 3
    lines = ssc.tailStream("/var/log/app.log", name="app")
    lines.map(lambda x: x * offset).union(lines).transform(lambda t, rdd: rdd).pprint()
    lines.foreachBatch(lambda df, batch_id: df.count())
    graph = cloudpickle.loads(cloudpickle.dumps(ssc.graph))
    assert [stream.name for stream in graph.inputs] == ["app"]
    assert [output.name for output in graph.outputs] == ["foreachRDD-0", "foreachBatch-0"]
    graph.attach(ssc)
    assert {stream.ssc for stream in graph.streams()} == {ssc}

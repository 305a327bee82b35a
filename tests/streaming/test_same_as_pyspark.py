"""The same programs on pyspark.streaming and on penstock, batch by batch, on manual clocks.

All programs of a group run in one context, as so many outputs; each is compared by itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel

from tests.streaming.engines import Outputs, collect, ours, step_theirs, theirs

pytestmark = pytest.mark.spark

Program = Callable[[Any, Any], Any]
"""Takes a context and its source stream; both engines' have the same methods."""

WORDS = [["a b", "b", "b"], [], ["b c"]]
PAIRS = [[("a", 1), ("b", 2), (None, 3), ("a", 5)], [], [("a", 4), (None, 7)]]
OTHERS = [[("a", 10), (None, 30), ("z", None)], [("a", 20)], []]
STREAM = [[1, 2], [3], [], [4, 5, 1], [6], [1], []]


def others(ssc: Any) -> Any:
    return ssc.queueStream(OTHERS)


def with_index(index: int, records: Any) -> Any:
    return [(index, record) for record in records]


def timed(time: datetime, rdd: Any) -> Any:
    seconds = time.timestamp()
    return rdd.map(lambda record: (seconds, record))


def timed_pair(time: datetime, left: Any, right: Any) -> Any:
    seconds = time.timestamp()
    return left.union(right).map(lambda record: (seconds, record))


def partitions(rdd: Any) -> Any:
    return rdd.mapPartitions(lambda records: [sum(1 for _ in records)])


OF_WORDS: dict[str, Program] = {
    "map": lambda ssc, s: s.map(str.upper),
    "flatMap": lambda ssc, s: s.flatMap(str.split),
    "filter": lambda ssc, s: s.filter(lambda line: " " in line),
    "mapPartitions": lambda ssc, s: s.mapPartitions(lambda lines: [len(list(lines))]),
    "mapPartitionsWithIndex": lambda ssc, s: s.mapPartitionsWithIndex(with_index),
    "glom": lambda ssc, s: s.glom(),
    "reduce": lambda ssc, s: s.reduce(max),
    "count": lambda ssc, s: s.count(),
    "countByValue": lambda ssc, s: s.countByValue(),
    "repartition": lambda ssc, s: s.repartition(5).transform(lambda rdd: partitions(rdd)),
    "transform": lambda ssc, s: s.transform(lambda rdd: rdd.distinct()),
    "transform with time": lambda ssc, s: s.transform(timed),
    "transformWith": lambda ssc, s: s.transformWith(lambda a, b: a.subtract(b), others(ssc)),
    "transformWith with time": lambda ssc, s: s.transformWith(timed_pair, others(ssc)),
    "union": lambda ssc, s: s.union(s.map(str.upper)),
    "union of a context": lambda ssc, s: ssc.union(s.map(str.upper), s.map(str.lower)),
    "transform of a context": lambda ssc, s: ssc.transform(
        [s, others(ssc)], lambda rdds: rdds[0].cartesian(rdds[1])
    ),
    "all of a queue, then its default": lambda ssc, s: ssc.queueStream(
        [[1], [2], [3]], oneAtATime=False, default=[9]
    ),
    "a cached stream": lambda ssc, s: s.map(str.lower).cache(),
    "a persisted stream": lambda ssc, s: s.map(str.lower).persist(StorageLevel.DISK_ONLY),
}

OF_PAIRS: dict[str, Program] = {
    "mapValues": lambda ssc, s: s.mapValues(lambda n: n + 1),
    "flatMapValues": lambda ssc, s: s.flatMapValues(range),
    "reduceByKey": lambda ssc, s: s.reduceByKey(operator.add),
    "combineByKey": lambda ssc, s: s.combineByKey(str, lambda c, v: f"{c}{v}", operator.add, 1),
    "groupByKey": lambda ssc, s: s.groupByKey(),
    "partitionBy": lambda ssc, s: s.partitionBy(3).transform(lambda rdd: partitions(rdd)),
    "partitionBy a function": lambda ssc, s: s.partitionBy(2, lambda key: key == "a").glom(),
    "cogroup": lambda ssc, s: s.cogroup(others(ssc)),
    "join": lambda ssc, s: s.join(others(ssc)),
    "leftOuterJoin": lambda ssc, s: s.leftOuterJoin(others(ssc), 1),
    "rightOuterJoin": lambda ssc, s: s.rightOuterJoin(others(ssc)),
    "fullOuterJoin": lambda ssc, s: s.fullOuterJoin(others(ssc)),
}


def keyed(stream: Any) -> Any:
    return stream.map(lambda n: (None if n == 2 else n % 3, n))


OF_WINDOWS: dict[str, Program] = {
    "window": lambda ssc, s: s.window(3).map(str),
    "window with slide": lambda ssc, s: s.window(4, 2),
    "window that leaves batches out": lambda ssc, s: s.window(1, 3),
    "window longer than the run": lambda ssc, s: s.window(60, 4),
    "window of windows": lambda ssc, s: s.window(2, 2).map(str).window(4, 4),
    "window of a dry queue": lambda ssc, s: ssc.queueStream([[7]]).window(4, 2),
    "join of windows": lambda ssc, s: keyed(s).window(2, 2).join(keyed(s).window(4, 2), 1),
    "reduceByWindow": lambda ssc, s: s.reduceByWindow(operator.add, None, 4, 2),
    "countByWindow": lambda ssc, s: s.countByWindow(4, 2),
    "countByWindow of five": lambda ssc, s: s.countByWindow(5, 1),
    "countByValueAndWindow": lambda ssc, s: s.countByValueAndWindow(5, 1, 1),
    "groupByKeyAndWindow": lambda ssc, s: keyed(s).groupByKeyAndWindow(4, 2, 1),
    "reduceByKeyAndWindow": lambda ssc, s: keyed(s).reduceByKeyAndWindow(max, None, 4, 2, 1),
    "reduceByKeyAndWindow inverse": lambda ssc, s: keyed(s).reduceByKeyAndWindow(
        operator.add, operator.sub, 5, 1, 1
    ),
    "reduceByKeyAndWindow filtered": lambda ssc, s: keyed(s).reduceByKeyAndWindow(
        operator.add, operator.sub, 5, 1, 1, lambda pair: pair[1] > 0
    ),
    "reduceByKeyAndWindow default slide": lambda ssc, s: keyed(s).reduceByKeyAndWindow(
        operator.add, None, 2
    ),
}


def total(values: Any, state: Any) -> Any:
    return sum(values) + (state or 0)


def keep_list(values: Any, state: Any) -> Any:
    """Changes the state that it is given, and what it returned before."""
    kept = [] if state is None else state
    kept.extend(values)
    return kept


def forget_quiet(values: Any, state: Any) -> Any:
    return (state or 0) + len(values) if values else None


def forget_even(values: Any, state: Any) -> Any:
    """Removes keys for a while; one that comes again begins anew."""
    told = (state or 0) + sum(values)
    return None if told % 2 == 0 else told


def count_calls(values: Any, state: Any) -> Any:
    return (state or 0) + 1


GIVEN = [("a", 100), ("z", 200), (None, 300)]

OF_STATES: dict[str, Program] = {
    "updateStateByKey": lambda ssc, s: s.updateStateByKey(total),
    "update of a list, changed again": lambda ssc, s: s.updateStateByKey(keep_list, 1).mapValues(
        lambda kept: keep_list([0], kept)
    ),
    "update that removes": lambda ssc, s: s.updateStateByKey(forget_quiet, 1),
    "update that removes at times": lambda ssc, s: s.updateStateByKey(forget_even, 1),
    "update that removes all": lambda ssc, s: s.union(
        s.updateStateByKey(lambda values, state: None, 1)
    ),
    "update of each key in each batch": lambda ssc, s: s.updateStateByKey(count_calls, 1),
    "update in three partitions": lambda ssc, s: s.updateStateByKey(total, 3).transform(partitions),
    "update from a list": lambda ssc, s: s.updateStateByKey(total, 1, GIVEN),
    "update from no list": lambda ssc, s: s.updateStateByKey(total, 1, initialRDD=[]),
    "update from an RDD": lambda ssc, s: s.updateStateByKey(
        total, 1, ssc.sparkContext.parallelize(GIVEN, 2)
    ),
    "update from an RDD with a key twice": lambda ssc, s: s.updateStateByKey(
        total, 1, ssc.sparkContext.parallelize([("a", 10), ("a", 10)], 1)
    ),
    "update of a window": lambda ssc, s: s.window(2, 2).updateStateByKey(total, 1),
    "update of an inverse window": lambda ssc, s: s.reduceByKeyAndWindow(
        operator.add, operator.sub, 5, 1, 1
    ).updateStateByKey(keep_list, 1),
    "update of an update": lambda ssc, s: s.updateStateByKey(total, 1).updateStateByKey(
        keep_list, 1
    ),
    "window of an update": lambda ssc, s: s.updateStateByKey(total, 1).window(3, 2),
    "window that leaves updates out": lambda ssc, s: s.updateStateByKey(total, 1).window(1, 3),
    "join of an update": lambda ssc, s: s.join(s.updateStateByKey(total, 1), 1),
    "update of a join": lambda ssc, s: s.leftOuterJoin(others(ssc), 1).updateStateByKey(
        keep_list, 1
    ),
    "checkpointed update": lambda ssc, s: s.updateStateByKey(keep_list, 1).checkpoint(2),
    "update without batches": lambda ssc, s: s.transform(
        lambda time, rdd: rdd if time.timestamp() % 2 else None
    ).updateStateByKey(count_calls, 1),
}


def define(ssc: Any, batches: list[Any], programs: dict[str, Program]) -> Outputs:
    """Add all programs to a context; return where their outputs will be."""
    sc = ssc.sparkContext
    width = 2 if programs in (OF_WORDS, OF_PAIRS) else 1  # others have many as it is
    source = ssc.queueStream([sc.parallelize(batch, width) for batch in batches])
    outputs: Outputs = {name: [] for name in [*programs, "end"]}
    for name, program in programs.items():
        collect(program(ssc, source), outputs[name])
    collect(source, outputs["end"])
    return outputs


def run_both(
    sc: SparkContext, folder: Path, batches: list[Any], programs: dict[str, Program], steps: int
) -> tuple[Outputs, Outputs]:
    with ours(sc) as (ssc, stepper):
        ours_out = define(ssc, batches, programs)
        ssc.start()
        stepper.step(steps)
    with theirs(sc, folder) as their_ssc:
        their_out = define(their_ssc, batches, programs)
        their_ssc.start()
        step_theirs(their_ssc, their_out, steps)
    return ours_out, their_out


@pytest.fixture(scope="module")
def both(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outputs, Outputs]:
    """The outputs of all programs, ours and theirs."""
    mine: Outputs = {}
    other: Outputs = {}
    groups = [
        (WORDS, OF_WORDS, 4),
        (PAIRS, OF_PAIRS, 4),
        (STREAM, OF_WINDOWS, 7),
        (PAIRS, OF_STATES, 4),
    ]
    for batches, programs, steps in groups:
        folder = tmp_path_factory.mktemp("pyspark")
        ours_out, their_out = run_both(sc, folder, batches, programs, steps)
        mine.update(ours_out)
        other.update(their_out)
    return mine, other


@pytest.mark.storm
@pytest.mark.parametrize("name", [*OF_WORDS, *OF_PAIRS, *OF_WINDOWS, *OF_STATES])
def test_same_output(both: tuple[Outputs, Outputs], name: str) -> None:
    mine, other = both
    assert mine[name] == other[name]
    assert any(records for _, records in mine[name])


SLICES = [(0, 9), (1, 1), (2, 3), (2.5, 3.5), (-5, 2), (3, 2), (0, 0)]


@pytest.mark.storm
def test_same_slices(sc: SparkContext, tmp_path: Path) -> None:
    def slices(source: Any) -> list[Any]:
        def at(seconds: float) -> Any:  # also as the datetime that users get
            return datetime.fromtimestamp(seconds) if seconds > 2 else seconds  # noqa: DTZ006

        spans = [(at(min(begin, 4)), at(min(end, 4))) for begin, end in SLICES]
        return [[rdd.collect() for rdd in source.slice(*span)] for span in spans]

    def look(ssc: Any, run: Callable[[Outputs], Any]) -> list[Any]:
        ssc.remember(60)
        source = ssc.queueStream(STREAM)
        slid = source.map(str).window(2, 2)
        outputs: Outputs = {"end": [], "slid": []}
        collect(slid, outputs["slid"])
        collect(source, outputs["end"])
        ssc.start()
        run(outputs)
        return [slices(source), slices(slid)]

    with ours(sc) as (ssc, stepper):
        mine = look(ssc, lambda _: stepper.step(4))
    with theirs(sc, tmp_path) as their_ssc:
        other = look(their_ssc, lambda outputs: step_theirs(their_ssc, outputs, 4))
    assert mine == other
    assert mine[0][0] == STREAM[:4]


@pytest.mark.parametrize("suffix", [None, "txt"])
def test_same_text_files(sc: SparkContext, tmp_path: Path, suffix: str | None) -> None:
    def save(ssc: Any, folder: Path) -> None:
        ssc.queueStream([["a", "ä"], []]).saveAsTextFiles(str(folder / "lines"), suffix)

    def written(folder: Path) -> dict[str, str]:
        parts = sorted(folder.glob("*/part-*"))
        return {f"{part.parent.name}/{part.name}": part.read_text() for part in parts}

    with ours(sc) as (ssc, stepper):
        save(ssc, tmp_path / "ours")
        ssc.start()
        stepper.step(2)
    with theirs(sc, tmp_path / "checkpoint") as their_ssc:
        save(their_ssc, tmp_path / "theirs")
        outputs: Outputs = {"end": []}
        collect(their_ssc.queueStream([[1]]), outputs["end"])
        their_ssc.start()
        step_theirs(their_ssc, outputs, 2)
    assert written(tmp_path / "ours") == written(tmp_path / "theirs")
    assert len(list((tmp_path / "ours").iterdir())) == 2


WRONG: dict[str, Program] = {
    "window": lambda ssc, s: s.window(1.5),
    "slide": lambda ssc, s: s.window(2, 0.7),
    "window over a slide": lambda ssc, s: s.window(2, 2).window(3),
    "slide over a slide": lambda ssc, s: s.window(2, 2).window(4, 1),
    "reduced window": lambda ssc, s: s.reduceByWindow(max, None, 2.5, 1),
    "reduced slide": lambda ssc, s: keyed(s).reduceByKeyAndWindow(max, min, 2, 1.5),
    "union of two slides": lambda ssc, s: s.union(s.window(2, 2)),
    "union of two slides by a context": lambda ssc, s: ssc.union(s, s.window(2, 2)),
    "no streams": lambda ssc, s: ssc.union(),
}


def test_same_errors(sc: SparkContext, tmp_path: Path) -> None:
    def refusals(ssc: Any) -> dict[str, str]:
        source = ssc.queueStream([[1]])
        found = {}
        for name, program in WRONG.items():
            with pytest.raises(ValueError, match=r"duration|at least one") as caught:
                program(ssc, source)
            found[name] = str(caught.value)
        return found

    with ours(sc) as (ssc, _):
        mine = refusals(ssc)
    with theirs(sc, tmp_path) as their_ssc:
        other = refusals(their_ssc)
    for name in ("window", "slide", "window over a slide", "slide over a slide"):
        assert mine[name].startswith(other[name])

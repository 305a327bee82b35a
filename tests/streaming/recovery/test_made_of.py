"""What parts of programs are described as: locations hold it, so it may never change."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import InputDStream, StreamingContext
from penstock.streaming.core.operators import Operator
from penstock.streaming.recovery.made_of import (
    describe_input,
    describe_operator,
    describe_output,
)
from penstock.structured.sinks import ParquetSink

pytestmark = pytest.mark.spark


def add(values: list[int], total: int | None) -> int:
    return sum(values) + (total or 0)


def write(frame: Any, batch_id: int, output: Any) -> None: ...


class Tally:
    def __call__(self, values: list[Any], state: Any) -> None: ...

    def latest(self, values: list[int], state: int | None) -> int | None:
        return values[-1] if values else state


def operators(ssc: StreamingContext) -> dict[str, str]:
    pairs = [(getattr(stream, "operator", None), stream) for stream in ssc.graph.streams()]
    made = {each.name: stream for each, stream in pairs if isinstance(each, Operator)}
    parts = (describe_operator(each, made.get(each.name)) for each in ssc.graph.operators.all())
    return {part.name: part.made_of for part in parts}


def test_operators(ssc: StreamingContext) -> None:
    lines = ssc.tailStream("/logs/a.log")
    words = lines.flatMap(str.split).filter(lambda word: word).map(lambda word: (word, 1))
    more = ssc.socketTextStream("localhost", 9999).transform(lambda rdd: rdd.distinct())
    both = words.union(more.map(partial(operator.mod, 2))).reduceByKey(operator.add, 4)
    both.updateStateByKey(add).pprint()
    both.updateStateByKey(Tally().latest, name="latest-0").pprint()
    words.join(both).updateStateByKey(Tally()).pprint()
    words.updateStateByKey(lambda values, state: None).pprint()
    words.window(4, 2).countByWindow(60, 2).pprint()
    words.countByValueAndWindow(2, 1).pprint()  # too small for state
    words.updateStateByKey(add)  # without an output
    of_words = "map(<lambda>) of filter(<lambda>) of flatMap(split) of tail-0"
    of_both = (
        f"reduceByKey(add) of union of ({of_words}) and "
        "(map(mod) of transform(<lambda>) of socket-1)"
    )
    assert operators(ssc) == {
        "updateStateByKey-0": f"updateStateByKey(add) of {of_both}",
        "latest-0": f"updateStateByKey(latest) of {of_both}",
        "updateStateByKey-2": f"updateStateByKey(Tally) of join of ({of_words}) and ({of_both})",
        "updateStateByKey-3": f"updateStateByKey(<lambda>) of {of_words}",
        "reduceByKeyAndWindow-0": "reduceByKeyAndWindow(add, sub) of reduceByKey(add) of map of "
        f"map of WindowedDStream of {of_words}",
        "reduceByKeyAndWindow-1": "reduceByKeyAndWindow",
        "updateStateByKey-4": "updateStateByKey",
    }


def test_inputs_and_outputs(ssc: StreamingContext, tmp_path: Path) -> None:
    lines = ssc.tailStream("/logs/a.log")
    lines.foreachBatch(write)
    inputs = [lines, ssc.textFileStream(str(tmp_path)), ssc.queueStream([])]
    inputs += [ssc.httpStream(8080), ssc.mqttStream("localhost", 1883, "a")]
    assert [describe_input(each).made_of for each in inputs] == [
        "ReceiverInputDStream(TailReceiver)",
        "FileInputDStream",
        "QueueInputDStream",
        "ReceiverInputDStream(HttpReceiver)",
        "ReceiverInputDStream(MqttReceiver)",
    ]
    (output,) = map(describe_output, ssc.graph.outputs)
    assert output.made_of == "foreachBatch(write) of tail-0"


@pytest.mark.parametrize(
    "make",
    [
        lambda ssc, which: ssc.tailStream(f"/logs/{which}.log"),
        lambda ssc, which: ssc.textFileStream(f"/in/{which}"),
        lambda ssc, which: ssc.socketTextStream("localhost", 9000 + ord(which)),
        lambda ssc, which: ssc.httpStream(9000 + ord(which)),
        lambda ssc, which: ssc.mqttStream("localhost", 1883, which),
        lambda ssc, which: ssc.kafkaStream(which, {"bootstrap.servers": "localhost:9"}),
        lambda ssc, which: ssc.kafkaReceiverStream(
            which, {"bootstrap.servers": "b:9", "group.id": "g"}
        ),
    ],
)
def test_where_an_input_connects_to_is_its_detail(
    ssc: StreamingContext, make: Callable[..., Any]
) -> None:
    a, b, again = (describe_input(make(ssc, which)) for which in "aba")
    assert a.detail == again.detail != b.detail


class Table:
    def __init__(self, table: str, password: str = "") -> None:
        self.table = table
        self.password = password

    def write(self, frame: Any, batch_id: int, output: Any) -> None: ...


def writer(path: str) -> Callable[..., None]:
    def write(frame: Any, batch_id: int, output: Any) -> None:
        print(path)

    return write


@pytest.mark.parametrize(
    "make",
    [
        lambda which: Table(which).write,
        writer,
        lambda which: partial(write, table=which),
        lambda which: ParquetSink(f"/out/{which}"),
        lambda which: ParquetSink(f"/out/{which}").__call__,
        lambda which: {
            "a": lambda frame, batch_id, output: frame.write("a"),
            "b": lambda frame, batch_id, output: frame.write("b"),
        }[which],
    ],
)
def test_where_an_output_writes_to_is_its_detail(
    ssc: StreamingContext, make: Callable[..., Any]
) -> None:
    lines = ssc.tailStream("/logs/a.log")
    for which in "aba":
        lines.foreachBatch(make(which))
    a, b, again = map(describe_output, ssc.graph.outputs)
    assert a.detail == again.detail != b.detail
    assert a.made_of == b.made_of


def test_two_clusters_are_told_apart(ssc: StreamingContext) -> None:
    confs = [{"bootstrap.servers": f"{host}:9"} for host in "aba"]
    for part in (
        [describe_input(ssc.kafkaStream("t", conf)) for conf in confs],
        [describe_input(ssc.kafkaReceiverStream("t", conf | {"group.id": "g"})) for conf in confs],
    ):
        assert part[0].detail == part[2].detail != part[1].detail


def test_secrets_are_in_no_detail(ssc: StreamingContext) -> None:
    lines = ssc.tailStream("/logs/a.log")
    for password in ("x", "y"):
        lines.foreachBatch(Table("a", password).write)
    first, second = map(describe_output, ssc.graph.outputs)
    assert first.detail == second.detail


class Answering:
    """Answers to any name, as proxies do."""

    def __getattr__(self, name: str) -> Any:
        return name

    def __call__(self, *args: Any) -> None: ...


class Named(InputDStream):
    """Has attributes that penstock's streams have with another meaning."""

    operation = 7

    def __init__(self, ssc: StreamingContext) -> None:
        super().__init__(ssc)
        self.operator = self.receivers = "someone's"
        self.proxy = Answering()

    def latest_offset(self, start: Any, time_ms: int) -> Any:
        return start

    def compute_range(self, wanted: Any) -> Any: ...


def test_objects_of_a_program_are_not_trusted(ssc: StreamingContext) -> None:
    proxy = Answering()
    stream = Named(ssc)
    stream.map(proxy).map(lambda record: proxy(record)).updateStateByKey(add).pprint()
    stream.foreachRDD(lambda time, rdd, output: proxy(rdd))
    assert describe_input(stream).made_of == "Named"
    assert describe_output(ssc.graph.outputs[1]).detail
    made_of = "updateStateByKey(add) of map(<lambda>) of map(__name__) of input-0"
    assert operators(ssc) == {"updateStateByKey-0": made_of}


def test_a_long_description_stays_short_and_unique(ssc: StreamingContext) -> None:
    queue = ssc.queueStream([])

    def made(last: Callable[..., Any], steps: int = 60) -> str:
        stream = queue
        for _ in range(steps):
            stream = stream.map(abs).union(stream.map(abs))  # 2 ** steps paths
        stream.map(last).updateStateByKey(add).pprint()
        (text,) = [operators(ssc)[ssc.graph.operators.all()[-1].name]]
        return text

    first = made(abs)
    assert len(first) <= 300
    assert made(abs) == first != made(abs, 59)


PRINT = """
from penstock.streaming.recovery.made_of import _details
lambdas = [
    lambda v, t: sum(v) + (t or 0), lambda v, t: [x * 300 for x in v if x in {"a", "b", "c"}],
    lambda v, t: f"{v}-{t}" + "x", lambda v, t: (lambda y: y.strip())(v),
]
print([_details([each]) for each in lambdas])
"""


def test_a_detail_is_the_same_in_each_process() -> None:
    runs = {
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1

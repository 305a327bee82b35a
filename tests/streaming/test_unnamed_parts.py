"""State, records and sinks of parts without names stay with what they belong to."""

from __future__ import annotations

import operator
import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.checkpoint.first_offsets import FirstOffsets
from penstock.checkpoint.rdd_marks import RddMarks
from penstock.checkpoint.unnamed_parts import UnnamedParts
from penstock.errors import LogFormatError, RecoveryMismatchError
from penstock.receivers import TailReceiver
from penstock.storage import open_storage
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.engine.settled_names import settle_names
from penstock.testing import ManualClock
from tests.crash_steps import PROTOCOL, CrashedError, Moment, Steps
from tests.streaming.runs import Runs
from tests.waiting import eventually

pytestmark = pytest.mark.spark

BATCHES = [[("apple", 1), ("banana", 1)], [("apple", 1)], [("apple", 1)], [("banana", 1)]]
Adds = Callable[[DStream], DStream]


def add(values: list[int], total: int | None) -> int:
    return sum(values) + (total or 0)


def letter(pair: tuple[str, int]) -> tuple[str, int]:
    return f"LETTER-{pair[0][0]}", pair[1]


def totals(pairs: DStream, **how: Any) -> DStream:
    return pairs.updateStateByKey(add, 1, **how)


def letters(pairs: DStream, **how: Any) -> DStream:
    return pairs.map(letter).updateStateByKey(add, 1, **how)


def windowed(pairs: DStream, **how: Any) -> DStream:
    return pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1, 1, **how)


def windowed_letters(pairs: DStream, **how: Any) -> DStream:
    return windowed(pairs.map(letter), **how)


class Program(Runs):
    """Runs of operators over one queue; has the newest records of each."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location, ManualClock())
        self.seen: dict[str, dict[str, int]] = {}

    def run(self, *adds: Adds, batches: int = 1, before: Callable[..., object] = id) -> None:
        def define(ssc: StreamingContext) -> None:
            before(ssc)
            pairs = ssc.queueStream(BATCHES)
            for each in adds:
                name = getattr(each, "func", each).__name__
                each(pairs).foreachRDD(partial(self.see, name))

        self.seen = {}
        with self.running_program(define) as stepper:
            stepper.step(batches)

    def see(self, name: str, rdd: Any) -> None:
        self.seen[name] = dict(rdd.collect())

    @property
    def described(self) -> list[str]:
        found = UnnamedParts(open_storage(self.location)).newest()
        return [f"{part.name}: {part.made_of}" for part in found]


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "checkpoint")


KINDS = [
    (totals, letters, 1),
    (windowed, windowed_letters, 2),  # a window begins with batches before it was there
]


@pytest.mark.parametrize(("old", "new", "begins"), KINDS)
def test_a_new_operator_before_an_old_one_takes_no_state_over(
    program: Program, old: Adds, new: Adds, begins: int
) -> None:
    program.run(old)
    program.run(new, old)
    assert program.seen[old.__name__] == {"apple": 2, "banana": 1}
    assert program.seen[new.__name__]["LETTER-a"] == begins
    program.run(old, new)  # in another order
    assert program.seen[old.__name__] == {"apple": 3, "banana": 1}
    assert program.seen[new.__name__]["LETTER-a"] == begins + 1


def test_a_location_of_an_earlier_release_goes_on_and_is_described(program: Program) -> None:
    program.run(totals, letters)
    shutil.rmtree(program.location / "unnamed")
    program.run(totals, letters)
    assert program.seen["totals"] == {"apple": 2, "banana": 1}
    program.run(letters, totals)
    assert program.seen == {
        "totals": {"apple": 3, "banana": 1},
        "letters": {"LETTER-a": 3, "LETTER-b": 1},
    }


def test_a_graph_of_an_earlier_release_goes_on_and_is_described(program: Program) -> None:
    """Such a graph does not tell which names were given."""

    def define(ssc: StreamingContext) -> None:
        pairs = ssc.queueStream(BATCHES)
        for each in (totals, letters):
            each(pairs).pprint()
        del ssc.graph.operators._usual
        for part in (*ssc.graph.inputs, *ssc.graph.outputs):
            del part.is_named

    program.run(totals, letters)
    shutil.rmtree(program.location / "unnamed")
    with program.running_program(define) as stepper:
        stepper.step()
    assert program.described == [
        "queue-0: QueueInputDStream",
        "updateStateByKey-0: updateStateByKey(add) of queue-0",
        "updateStateByKey-1: updateStateByKey(add) of map(letter) of queue-0",
    ]
    program.run(letters, totals)
    assert program.seen["totals"] == {"apple": 3, "banana": 1}


def test_harmless_changes_go_on_without_a_word(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    def doubled(pairs: DStream) -> DStream:
        return totals(pairs).mapValues(lambda total: 2 * total)

    program.run(totals)
    assert "updateStateByKey-0" in caplog.text
    assert "name=" in caplog.text
    caplog.clear()

    def more(ssc: StreamingContext) -> None:
        ssc.remember(2)

    program.run(totals, before=more)
    program.run(lambda pairs: pairs, doubled)  # an output before it, a map behind it
    assert program.seen["doubled"] == {"apple": 6, "banana": 2}
    with program.running_program(later_input(program)) as stepper:
        stepper.step()
    assert program.seen["totals"] == {"apple": 3, "banana": 2}
    assert caplog.text.count("name=") == 0


def later_input(program: Program) -> Callable[[StreamingContext], None]:
    def define(ssc: StreamingContext) -> None:
        totals(ssc.queueStream(BATCHES)).foreachRDD(partial(program.see, "totals"))
        ssc.tailStream(str(program.location.parent / "later.log")).pprint()

    return define


def test_lambdas_of_the_same_go_on_until_the_program_changes(program: Program) -> None:
    def either(pairs: DStream) -> DStream:
        sums = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0), 1)
        most = pairs.updateStateByKey(lambda new, old: max([*new, old or 0]), 1)
        return sums.join(most, 1)

    def swapped(pairs: DStream) -> DStream:
        most = pairs.updateStateByKey(lambda new, old: max([*new, old or 0]), 1)
        sums = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0), 1)
        return sums.join(most, 1)

    def both_edited(pairs: DStream) -> DStream:
        sums = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 10), 1)
        most = pairs.updateStateByKey(lambda new, old: max([*new, old or 20]), 1)
        return sums.join(most, 1)

    program.run(either)
    program.run(either)
    program.run(swapped)
    assert program.seen["swapped"] == {"apple": (3, 1), "banana": (1, 1)}
    with pytest.raises(RecoveryMismatchError, match=r"updateStateByKey-0.*updateStateByKey\(<lam"):
        program.run(both_edited)
    program.run(either)
    assert program.seen["either"] == {"apple": (3, 1), "banana": (2, 1)}


def test_the_name_of_the_hint_goes_on(program: Program) -> None:
    def first(pairs: DStream, **how: Any) -> DStream:
        return totals(pairs.filter(letter), **how)

    def second(pairs: DStream, **how: Any) -> DStream:
        return totals(pairs.mapValues(int), **how)

    program.run(totals)
    with pytest.raises(RecoveryMismatchError) as error:
        program.run(first, second)
    assert error.value.hint is not None
    assert "name='updateStateByKey-0'" in error.value.hint
    program.run(first, partial(second, name="updateStateByKey-0"))
    assert program.seen == {"first": {"apple": 1}, "second": {"apple": 2, "banana": 1}}
    program.run(first, second)
    assert program.seen == {"first": {"apple": 2}, "second": {"apple": 3, "banana": 1}}


STEPS = {
    **PROTOCOL,
    "describe": (UnnamedParts, "add"),
    "forget": (UnnamedParts, "purge"),
    "begin": (FirstOffsets, "settle"),
    "mark": (RddMarks, "add"),
}


@pytest.mark.storm
@pytest.mark.parametrize(
    ("moment", "first_start"),
    [
        *product(
            ["before-describe-1", "after-describe-1", "before-forget-1", "after-forget-1"],
            [True, False],
        ),
        *product(["after-mark-1", "before-plan-1", "after-plan-1"], [True, False]),
        ("after-begin-1", True),
    ],
)
def test_a_kill_where_the_description_is_written(
    program: Program, moment: str, first_start: bool
) -> None:
    """Each operator has the state that it was given to begin with, in whatever order."""
    old = partial(totals, initialRDD=[("given", 100)])
    new = partial(letters, initialRDD=[("begun", 7)])
    if not first_start:
        program.run(old)
    steps = Steps(Moment.parse(moment), steps=STEPS)
    adds = [old] if first_start else [new, old]
    with steps.watched(), pytest.raises(CrashedError):
        program.run(*adds, batches=2)
    program.run(new, old, batches=0)
    program.run(old, new, batches=2)
    assert program.seen["totals"].keys() == {"apple", "banana", "given"}
    assert program.seen["totals"]["given"] == 100
    assert {key[:6] for key in program.seen["letters"]} == {"LETTER", "begun"}
    assert program.seen["letters"]["begun"] == 7
    assert len(list((program.location / "unnamed").glob("[0-9]*"))) <= 2


def test_a_damaged_description_is_refused_with_the_way_out(program: Program) -> None:
    program.run(totals)
    entry = program.location / "unnamed/0"
    entry.write_text(entry.read_text().replace("add", "sub"))
    with pytest.raises(LogFormatError, match="unnamed/0") as error:
        program.run(totals)
    assert "delete the folder" in (error.value.hint or "")


# -- inputs --


def tails(*paths: Path, names: dict[Path, str] | None = None) -> Callable[..., None]:
    def define(ssc: StreamingContext) -> None:
        for path in paths:
            ssc.tailStream(str(path), name=(names or {}).get(path)).pprint()

    return define


def test_an_input_does_not_get_the_records_of_another_one(runs: Runs, tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    with runs.running_program(tails(a)):
        pass
    with pytest.raises(RecoveryMismatchError, match=r"'tail-0'.*would be called 'tail-1'") as error:
        runs.start_program(tails(b, a))
    assert "name='tail-0'" in (error.value.hint or "")
    with runs.running_program(tails(b, a, names={a: "tail-0", b: "b"})):
        pass
    with runs.running_program(tails(a, names={a: "tail-0"})) as _:
        pass


def test_inputs_that_changed_places_are_refused(runs: Runs, tmp_path: Path) -> None:
    a, b, moved = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "moved.log"
    with runs.running_program(tails(a, b)):
        pass
    with pytest.raises(RecoveryMismatchError, match=r"'tail-\d'.*would be called 'tail-\d'"):
        runs.start_program(tails(b, a))
    with runs.running_program(tails(a, moved)):  # only one has moved
        pass
    with runs.running_program(tails(a, moved)):
        pass


def test_a_receiver_does_not_get_the_position_of_another_one(runs: Runs, tmp_path: Path) -> None:
    a, b, c = (tmp_path / f"{name}.log" for name in "abc")
    for path in (a, b, c):
        path.write_text(f"{path.name} 1\n{path.name} 2\n")

    seen: list[str] = []

    def run(*paths: Path, until: int) -> None:
        receivers = [TailReceiver(str(path)) for path in paths]

        def define(ssc: StreamingContext) -> None:
            lines = ssc.receiverStream(receivers, "numbers")
            lines.foreachRDD(lambda rdd: seen.extend(rdd.collect()))

        with runs.running_program(define) as stepper:
            assert eventually(lambda: (stepper.step(), len(seen) >= until)[1])

    run(a, b, until=4)
    with b.open("a") as file:
        file.write("b.log 3\n")
    run(b, c, until=7)
    run(b, until=7)
    assert sorted(seen) == [
        *("a.log 1", "a.log 2", "b.log 1", "b.log 2", "b.log 3", "c.log 1", "c.log 2")
    ]


# -- outputs --


def test_an_output_that_a_sink_knows_is_found_at_another_place(program: Program) -> None:
    named: dict[str, str] = {}

    def write(time: Any, rdd: Any, output: Any) -> None:
        named["write"] = output.output

    def copy(time: Any, rdd: Any, output: Any) -> None:
        named["copy"] = output.output

    def run(*outputs: Callable[..., Any] | None) -> dict[str, str]:
        def define(ssc: StreamingContext) -> None:
            pairs = ssc.queueStream(BATCHES)
            for each in outputs:
                if each is None:
                    pairs.pprint()
                else:
                    pairs.foreachRDD(each)

        named.clear()
        with program.running_program(define) as stepper:
            stepper.step()
        return dict(named)

    assert run(write) == {"write": "foreachRDD-0"}
    assert run(None, copy, write) == {"write": "foreachRDD-0", "copy": "foreachRDD-1"}
    assert run(write, copy) == {"write": "foreachRDD-0", "copy": "foreachRDD-1"}
    assert run(None, None, write, copy) == {"write": "foreachRDD-0", "copy": "foreachRDD-1"}
    names = {each.name for each in program.ssc.graph.outputs}
    assert len(names) == 4


def test_settling_writes_nothing_by_itself(sc: SparkContext, tmp_path: Path) -> None:
    """A start that is refused leaves the location as it was."""
    ssc = StreamingContext(sc, 1)
    totals(ssc.queueStream(BATCHES)).pprint()
    storage = open_storage(tmp_path)
    settle_names(ssc.graph, storage)
    assert not list(storage.names("unnamed"))
    ssc.stop(stopSparkContext=False)

"""Parts without names are found by kind and place; a change that leaves it open is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.errors import RecoveryMismatchError
from penstock.receivers import Receiver, SocketReceiver, TailReceiver
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from tests.streaming.runs import Runs

pytestmark = pytest.mark.spark

BATCHES = [[("apple", 1), ("banana", 1)], [("apple", 1)], [("apple", 1)], [("banana", 1)]]
Adds = Callable[[DStream], DStream]


def add(values: list[int], total: int | None) -> int:
    return sum(values) + (total or 0)


def totals(pairs: DStream, **how: Any) -> DStream:
    return pairs.updateStateByKey(add, 1, **how)


def letters(pairs: DStream, **how: Any) -> DStream:
    return pairs.map(lambda pair: (f"LETTER-{pair[0][0]}", pair[1])).updateStateByKey(add, 1, **how)


class Program(Runs):
    """Runs of operators over one queue; has the newest records of each."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location, ManualClock())
        self.seen: dict[str, dict[str, int]] = {}

    def run(self, *adds: Adds, before: Callable[[StreamingContext], object] = id) -> None:
        def define(ssc: StreamingContext) -> None:
            before(ssc)
            pairs = ssc.queueStream(BATCHES)
            for each in adds:
                name = getattr(each, "func", each).__name__
                each(pairs).foreachRDD(partial(self.see, name))

        self.seen = {}
        with self.running_program(define) as stepper:
            stepper.step()

    def see(self, name: str, rdd: Any) -> None:
        self.seen[name] = dict(rdd.collect())


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "checkpoint")


def test_an_operator_of_a_kind_that_others_join_is_named_and_goes_on(program: Program) -> None:
    program.run(totals)
    for changed in ([letters, totals], [totals, letters]):
        with pytest.raises(RecoveryMismatchError, match=r"updateStateByKey-0.*-0.*-1") as error:
            program.run(*changed)
        assert "name='updateStateByKey-0'" in (error.value.hint or "")
    goes_on = partial(totals, name="updateStateByKey-0")
    program.run(letters, goes_on)
    assert program.seen == {"totals": {"apple": 2, "banana": 1}, "letters": {"LETTER-a": 1}}
    program.run(letters, goes_on)
    assert program.seen == {"totals": {"apple": 3, "banana": 1}, "letters": {"LETTER-a": 2}}


def test_an_operator_of_a_kind_that_others_leave_is_named_and_goes_on(program: Program) -> None:
    program.run(totals, letters)
    with pytest.raises(RecoveryMismatchError, match=r"-0, updateStateByKey-1, the program has"):
        program.run(letters)


def test_changes_of_other_parts_are_free(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    def doubled(pairs: DStream) -> DStream:
        return totals(pairs).mapValues(lambda total: 2 * total)

    program.run(totals)
    program.run(totals, before=lambda ssc: ssc.remember(2))
    program.run(lambda pairs: pairs, doubled)  # an output before it, a map behind it
    assert program.seen["doubled"] == {"apple": 6, "banana": 2}
    program.run(partial(letters, name="letters"), totals)
    assert program.seen["totals"] == {"apple": 3, "banana": 2}
    program.run(letters_in_windows, partial(letters, name="letters"), totals)  # a new kind
    assert "name=" not in caplog.text


def letters_in_windows(pairs: DStream) -> DStream:
    return pairs.reduceByKeyAndWindow(max, None, 2, 1, 1)


def test_two_of_a_kind_are_warned_of_at_each_start(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        program.run(totals, letters)
        assert "updateStateByKey-0, updateStateByKey-1" in caplog.text
        assert "name=" in caplog.text


# -- inputs --


def tails(*paths: Path, names: dict[Path, str] | None = None) -> Callable[..., None]:
    def define(ssc: StreamingContext) -> None:
        for path in paths:
            ssc.tailStream(str(path), name=(names or {}).get(path)).pprint()

    return define


def test_an_input_does_not_get_the_records_of_another_one(runs: Runs, tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    with runs.running_program(tails(a)) as stepper:
        stepper.step()
    with pytest.raises(RecoveryMismatchError, match=r"tail-0.*tail-0, tail-1") as error:
        runs.start_program(tails(b, a))
    assert "name='tail-0'" in (error.value.hint or "")
    with runs.running_program(tails(b, a, names={a: "tail-0", b: "b"})) as stepper:
        stepper.step()


def test_a_receiver_does_not_get_the_position_of_another_one(runs: Runs, tmp_path: Path) -> None:
    tail, socket = TailReceiver(str(tmp_path / "a.log")), SocketReceiver("127.0.0.1", 1)
    other = TailReceiver(str(tmp_path / "b.log"))

    def define(*receivers: Receiver) -> Callable[[StreamingContext], None]:
        return lambda ssc: ssc.receiverStream(list(receivers), "lines").pprint()

    with runs.running_program(define(tail)):
        pass
    with pytest.raises(
        RecoveryMismatchError, match=r"r0 SocketReceiver\(127.* were r0 Tail"
    ) as error:
        runs.start_program(define(socket, tail))
    assert "new ones at the end" in (error.value.hint or "")
    for receivers in ([tail, socket], [tail], [other, socket]):  # the tail has another path
        with runs.running_program(define(*receivers)):
            pass
    with runs.running_program(define(other, socket, tail)):
        pass
    for moved in ([tail, socket, other], [socket], [tail]):
        with pytest.raises(RecoveryMismatchError, match="changed places"):
            runs.start_program(define(*moved))


# -- outputs --


def test_an_output_that_a_sink_knows_keeps_its_name_or_is_refused(program: Program) -> None:
    named: list[str] = []

    def write(time: Any, rdd: Any, output: Any) -> None:
        named.append(output.output)

    def run(*outputs: Callable[..., Any] | None, name: str | None = None) -> None:
        def define(ssc: StreamingContext) -> None:
            pairs = ssc.queueStream(BATCHES)
            for each in outputs:
                if each is None:
                    pairs.foreachRDD(lambda rdd: None)
                else:
                    pairs.foreachRDD(each, name=name)

        with program.running_program(define) as stepper:
            stepper.step()

    run(write)
    with pytest.raises(RecoveryMismatchError, match=r"foreachRDD-0.*foreachRDD-1"):
        run(None, write)
    run(None, write, name="foreachRDD-0")
    assert named == ["foreachRDD-0", "foreachRDD-0"]

"""Which changes of a program its checkpoint location allows. Pure."""

from __future__ import annotations

import pytest

from penstock.errors import RecoveryMismatchError
from penstock.streaming.core.operators import Operator
from penstock.streaming.recovery.match import (
    check_operators,
    check_outputs,
    check_unnamed,
    describe_program,
    leftover_first_offsets,
    places_of_inputs,
    recorded_inputs,
)

COUNTS = Operator("counts", "updateStateByKey")
SESSIONS = Operator("sessions", "reduceByKeyAndWindow")


@pytest.mark.parametrize(
    ("recorded", "now", "places"),
    [
        (["a", "b"], ["a", "b"], (0, 1)),
        (["a", "b"], ["b", "a"], (1, 0)),
        (["a", "b"], ["b", "new", "a"], (1, None, 0)),
        ([], ["a"], (None,)),
    ],
)
def test_inputs_are_found_by_name(
    recorded: list[str], now: list[str], places: tuple[int | None, ...]
) -> None:
    assert places_of_inputs(recorded, now) == places


@pytest.mark.parametrize("now", [["a"], ["c", "a"]])
def test_a_missing_input_is_refused_by_name_with_the_way_out(now: list[str]) -> None:
    with pytest.raises(RecoveryMismatchError, match=r"input 'b'.*name='b'.*new checkpoint") as e:
        places_of_inputs(["a", "b"], now)
    assert e.value.ids == {"stream": "b"}


def test_a_program_is_described_in_the_conf_of_its_batches() -> None:
    outputs = {"copy": True, "foreachRDD-0": False}
    conf = describe_program(["a", "b"], [COUNTS, SESSIONS], outputs, ["copy"])
    assert conf == {
        "spark.penstock.inputs": '["a","b"]',
        "spark.penstock.operators": '[{"kind":"updateStateByKey","name":"counts"},'
        '{"kind":"reduceByKeyAndWindow","name":"sessions"}]',
        "spark.penstock.outputs": '{"copy":true,"foreachRDD-0":false}',
        "spark.penstock.toldOutputs": '["copy"]',
    }
    assert recorded_inputs(conf) == ["a", "b"]


@pytest.mark.parametrize("now", [[COUNTS, SESSIONS], [SESSIONS, COUNTS]])
def test_operators_that_are_the_same_may_be_reordered(now: list[Operator]) -> None:
    check_operators(describe_program([], [COUNTS, SESSIONS], {}, []), now)


def test_an_operator_may_be_new() -> None:
    check_operators(describe_program([], [COUNTS], {}, []), [SESSIONS, COUNTS])


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ([], r"state of updateStateByKey 'counts'.*not in the program.*none.*name='counts'"),
        ([Operator("Counts", COUNTS.kind)], r"'counts'.*operators: 'Counts'\)"),
        (
            [Operator("counts", "reduceByKeyAndWindow")],
            r"'counts' is a reduceByKeyAndWindow now.*that of a updateStateByKey",
        ),
    ],
)
def test_an_operator_that_does_not_fit_its_state_is_refused(
    now: list[Operator], message: str
) -> None:
    with pytest.raises(RecoveryMismatchError, match=message) as caught:
        check_operators(describe_program([], [COUNTS], {}, []), now)
    assert caught.value.ids == {"operator": "counts"}
    assert "new checkpoint location" in str(caught.value)


def test_an_entry_that_names_no_inputs_is_none_of_a_program() -> None:
    with pytest.raises(RecoveryMismatchError, match="names no inputs"):
        recorded_inputs({"spark.penstock.zeroTimeMs": "5"})


OUTPUTS = {"copy": True, "foreachRDD-0": False}


@pytest.mark.parametrize(
    "now", [OUTPUTS, {"copy": True}, {"new": True, "copy": True}, {"copy": True, "other": False}]
)
def test_outputs_may_come_and_those_that_do_not_write_exactly_once_may_go(
    now: dict[str, bool],
) -> None:
    check_outputs(describe_program([], [], OUTPUTS, []), now)


@pytest.mark.parametrize("now", [{}, {"Copy": True}, {"copy": False}])
def test_an_exactly_once_output_keeps_its_name(now: dict[str, bool]) -> None:
    with pytest.raises(RecoveryMismatchError, match=r"'copy'.*name='copy'.*new checkpoint") as e:
        check_outputs(describe_program([], [], OUTPUTS, []), now)
    assert e.value.ids == {"output": "copy"}


def test_first_offsets_of_inputs_that_the_program_lacks() -> None:
    assert leftover_first_offsets(["b", "a", "c"], ["a", "d"]) == ["b", "c"]


RECORDED = describe_program(["tail-0", "web"], [], {}, [])


@pytest.mark.parametrize(
    ("inputs", "unnamed"),
    [
        (["tail-0", "web"], ["tail-0"]),
        (["web", "tail-0", "tail-2"], ["tail-2"]),  # given the name that it had
        (["tail-0", "web", "socket-2"], ["tail-0", "socket-2"]),
        (["web"], []),  # refused as any input that is gone
    ],
)
def test_unnamed_parts_that_cannot_be_mistaken(inputs: list[str], unnamed: list[str]) -> None:
    check_unnamed(RECORDED, "input", inputs, unnamed)


@pytest.mark.parametrize("unnamed", [["tail-1"], ["tail-0", "tail-2"]])
def test_an_unnamed_part_that_may_be_another_one_is_refused(unnamed: list[str]) -> None:
    message = r"inputs tail-0, the program has tail-\d.*name='tail-0'"
    with pytest.raises(RecoveryMismatchError, match=message) as caught:
        check_unnamed(RECORDED, "input", ["web", *unnamed], unnamed)
    assert caught.value.ids == {"input": "tail-0"}

"""Which part of a changed program a name belongs to that no one gave. Pure."""

from __future__ import annotations

import pytest

from penstock.checkpoint.unnamed_parts import Part
from penstock.errors import RecoveryMismatchError
from penstock.streaming.recovery.unnamed import settle

KIND = "updateStateByKey"


def part(name: str, made_of: str, detail: str = "") -> Part:
    if name.isdigit():
        name = f"{KIND}-{name}"
    return Part("operator", name, KIND, made_of, detail)


TOTALS = part("0", f"{KIND}(add) of map(<lambda>) of tail-0", "a")
OTHER = part("1", f"{KIND}(add) of tail-0", "b")
MAX = part("2", f"{KIND}(max) of tail-0", "c")


def at(place: int, of: Part, detail: str | None = None) -> Part:
    return part(str(place), of.made_of, of.detail if detail is None else detail)


def settled(before: list[Part], now: list[Part], *given: Part) -> list[int | str]:
    names = settle(before, now, given)
    return [int(name.rpartition("-")[2]) for name in names]


def test_an_unchanged_program_keeps_its_names() -> None:
    before = [TOTALS, OTHER, MAX]
    assert settled(before, before) == [0, 1, 2]


def test_parts_of_the_same_keep_their_order_while_there_are_as_many() -> None:
    assert settled([TOTALS, at(1, TOTALS)], [TOTALS, at(1, TOTALS)]) == [0, 1]


def test_a_part_is_found_at_another_place() -> None:
    assert settled([TOTALS, OTHER], [at(0, OTHER), at(1, TOTALS)]) == [1, 0]
    assert settled([TOTALS], [at(0, OTHER), at(1, TOTALS)]) == [1, 0]


def test_what_is_made_of_the_same_is_told_apart_by_its_detail() -> None:
    mine, other = part("0", TOTALS.made_of, "mine"), part("1", TOTALS.made_of, "other")
    assert settled([mine, other], [at(0, other), at(1, mine)]) == [1, 0]
    assert settled([mine, other], [at(0, other), at(1, mine, "edited")]) == [1, 0]
    assert settled([mine], [at(0, other), at(1, mine)]) == [1, 0]


@pytest.mark.parametrize(
    "now",
    [
        at(0, TOTALS, "edited"),
        part("0", f"{KIND}(add) of filter(<lambda>) of map(<lambda>) of tail-0"),
        part("0", f"{KIND}(renamed) of kafka-0"),
    ],
)
def test_the_only_one_of_its_kind_goes_on_however_it_changed(now: Part) -> None:
    assert settled([TOTALS], [now]) == [0]
    assert settled([TOTALS, MAX], [at(0, MAX), part("1", now.made_of, now.detail)]) == [2, 0]


def test_a_new_part_gets_a_name_that_none_had() -> None:
    assert settled([TOTALS, OTHER], [at(0, MAX), at(1, OTHER), at(2, TOTALS)]) == [2, 1, 0]
    assert settled([], [TOTALS, OTHER]) == [0, 1]
    assert settled([], [TOTALS], part("0", "anything")) == [1]


OPEN = {
    "two of the same detail, one before": ([TOTALS], [TOTALS, at(1, TOTALS)]),
    "one of the same detail, two before": ([TOTALS, at(1, TOTALS)], [TOTALS]),
    "two whose code changed": (
        [TOTALS, at(1, TOTALS, "b")],
        [at(0, TOTALS, "c"), at(1, TOTALS, "d")],
    ),
    "two over other streams": (
        [TOTALS, OTHER],
        [part("0", f"{KIND}(add) of x"), part("1", f"{KIND}(add) of y")],
    ),
    "one that changed beside a new one": (
        [TOTALS],
        [part("0", f"{KIND}(f) of x"), part("1", f"{KIND}(g) of y")],
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_an_open_choice_is_refused_by_name(case: str) -> None:
    before, now = OPEN[case]
    with pytest.raises(RecoveryMismatchError, match=rf"{KIND}-0.*was: {KIND}\(add\)") as error:
        settle(before, now, [])
    assert error.value.ids == {"operator": f"{KIND}-0"}
    assert error.value.hint is not None
    assert f"name='{KIND}-0'" in error.value.hint


def test_the_name_in_the_hint_ends_the_choice() -> None:
    before, now = OPEN["two whose code changed"]
    given = part("0", now[1].made_of, now[1].detail)
    assert settle(before, [at(1, now[0])], [given]) == [f"{KIND}-1"]


def test_a_part_that_was_given_another_name_meanwhile_leaves_the_choice_open() -> None:
    with pytest.raises(RecoveryMismatchError, match=f"{KIND}-0"):
        settle([TOTALS], [TOTALS], [part("totals", TOTALS.made_of, TOTALS.detail)])
    assert settled([TOTALS], [TOTALS], part("letters", OTHER.made_of)) == [0]


def test_a_part_that_is_gone_keeps_its_name() -> None:
    assert settled([TOTALS, MAX], [at(0, MAX)]) == [2]
    assert settled([TOTALS, MAX], [at(0, MAX), at(1, OTHER)], TOTALS) == [2, 1]

"""A query over a journal that is taken back by ``penstock checkpoint rewind``."""

from __future__ import annotations

import pytest

from penstock.checkpoint.tools import apply_plan, inspect, plan_rewind, plan_undo, validate
from tests.journal.helpers import write_blocks
from tests.structured.queries import Query

pytestmark = pytest.mark.spark


def test_a_query_that_was_killed_and_taken_back_is_sound(query: Query) -> None:
    write_blocks(query.stream, [["a"], ["b"], ["c"]], close=False)
    query.options["maxOffsetsPerTrigger"] = "1"
    query.drain()
    for name in ("2", ".2.crc"):  # killed in batch 2
        (query.location / "commits" / name).unlink()
    plan = plan_rewind(query.location, to_batch=0)
    assert any("penstock journal ls" in line for line in plan.meaning)
    apply_plan(plan)
    (note,) = [each for each in validate(query.location).findings if "commits" in each.path]
    assert (note.severity, note.path) == ("note", "commits/2")
    assert "rewind" in note.what
    assert query.drain() == [["b"], ["c"]]


def test_it_reads_again_what_came_after_a_batch(query: Query) -> None:
    write_blocks(query.stream, [["a"], ["b"], ["c"]], close=False)
    query.options["maxOffsetsPerTrigger"] = "1"
    assert query.drain() == [["a"], ["b"], ["c"]]

    apply_plan(plan_rewind(query.location, to_batch=1))
    assert query.drain() == [["c"]]
    undo = apply_plan(plan_rewind(query.location, shift_by=2))
    apply_plan(plan_undo(undo))
    assert query.drain() == []
    apply_plan(plan_rewind(query.location, shift_by=2))
    assert query.drain() == [["b"], ["c"]]

    write_blocks(query.stream, [["d"]], receiver="r1")
    assert query.drain() == [["d"]]
    assert query.ids == sorted(set(query.ids))
    assert [each for each in validate(query.location).findings if each.severity != "note"] == []
    assert inspect(query.location).next.rerun == ()

"""``repair``: what it fixes, what it leaves, and that it can be taken back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import (
    apply_plan,
    inspect,
    plan_repair,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.used_sinks import note_sink_of
from penstock.storage import open_storage
from tests.cli.commands import Commands

from .queries import write_query
from .test_changes import CHECKPOINT, files_of
from .test_validate import edit, remove

NL = "\n"


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """What a query of Spark with state leaves: batches 0 to 4 are done."""
    return write_query(tmp_path / "query", batches=5)


def tear_offsets(query: Path) -> None:
    remove(query / "commits/4")
    edit(query / "offsets/4", lambda text: text[:-1])  # {"logOffset":4


def alter(path: Path) -> None:
    """Change a digit, and not the checksum."""
    text = path.read_text()
    (at, digit), *_ = ((n, c) for n, c in reversed([*enumerate(text)]) if c.isdigit())
    path.write_text(f"{text[:at]}{int(digit) ^ 1}{text[at + 1 :]}")


FIXED: dict[str, tuple[Callable[[Path], object], list[str], int]] = {
    "torn offsets": (tear_offsets, ["offsets/4"], 4),
    "altered offsets": (
        lambda q: (remove(q / "commits/4"), alter(q / "offsets/4")),
        ["offsets/4"],
        4,
    ),
    "altered commit": (lambda q: alter(q / "commits/4"), ["commits/4"], 4),
    "torn commit": (lambda q: (q / "commits/4").write_bytes(b"v1\n{"), ["commits/4"], 4),
    "empty commit": (lambda q: (q / "commits/4").write_bytes(b""), ["commits/4"], 4),
    "commit cut after its version": (
        lambda q: (q / "commits/4").write_bytes(b"v1"),
        ["commits/4"],
        4,
    ),
    "commit cut before its line": (
        lambda q: edit(q / "commits/4", lambda _: "v1\n"),
        ["commits/4"],
        4,
    ),
    "commits ahead": (
        lambda q: (remove(q / "offsets/3"), remove(q / "offsets/4")),
        ["commits/4", "commits/3"],
        3,
    ),
    "temporary": (lambda q: (q / "offsets/.5.0b1e.tmp").touch(), ["offsets/.5.0b1e.tmp"], 5),
    "checksum alone": (lambda q: (q / "offsets/.5.crc").write_bytes(b"crc"), ["offsets/.5.crc"], 5),
}


@pytest.mark.parametrize("case", FIXED)
def test_what_can_be_fixed_is_fixed_and_can_be_taken_back(query: Path, case: str) -> None:
    damage, paths, following = FIXED[case]
    damage(query)
    before = files_of(query)

    plan = plan_repair(query)
    named = [each.path for each in plan.changes]
    own = [path for path in named if not path.endswith(".crc")] or named
    assert own == paths
    assert plan.meaning[0].startswith(f"batch {following} runs next")
    steps: list[int] = []
    undo = apply_plan(plan, stopped=True, on_step=steps.append)
    assert len(steps) == len(plan.changes)
    assert validate(query).findings == ()
    assert inspect(query).next.first == following

    apply_plan(plan_undo(undo), stopped=True)
    assert files_of(query) == before


def test_validate_names_it_where_it_helps(query: Path) -> None:
    validate_command = Commands("checkpoint", "validate", columns=200)
    tear_offsets(query)
    told = f"penstock checkpoint repair {query} fixes what needs no choice, by 2 files"
    assert told in validate_command.run(str(query)).output
    shutil.rmtree(query / "state")
    remove(query / "offsets/4")
    remove(query / "metadata")
    assert "checkpoint repair" not in validate_command.run(str(query)).output


LEFT: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn and committed, without its state": (
        lambda q: ((q / "offsets/4").write_bytes(b""), remove(q / "state/0/1/4.delta")),
        "offsets/4",
    ),
    "the start of the newest": (lambda q: (q / "offsets/3").write_bytes(b""), "offsets/3"),
    "an older entry": (lambda q: (q / "offsets/2").write_bytes(b""), "offsets/2"),
    "newer version": (
        lambda q: (remove(q / "commits/4"), edit(q / "offsets/4", lambda t: t.replace("v1", "v9"))),
        "offsets/4",
    ),
    "checksum of an older entry": (lambda q: alter(q / "offsets/2"), "offsets/2"),
    "no id": (lambda q: remove(q / "metadata"), "metadata"),
    "state": (lambda q: remove(q / "state/0/1/5.delta"), "state/0/1/5.delta"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_needs_a_choice_is_left(query: Path, case: str) -> None:
    damage, path = LEFT[case]
    damage(query)
    before = files_of(query)

    done = CHECKPOINT.run("repair", str(query), "--apply")
    assert done.exit_code == {"offsets/2": 1}.get(path, 2)
    printed = done.output

    assert "nothing that can be fixed without a choice" in printed
    assert f"left as it is: {path}: " in printed
    assert "To fix: " in printed
    assert files_of(query) == before


@pytest.mark.parametrize("content", [b"", b"v1\n{}\n{"])
def test_a_torn_entry_of_a_committed_batch_is_passed_over(
    query: Path, tmp_path: Path, content: bytes
) -> None:
    """Where it ended is not known: its records are read again by a batch of a new id."""
    (tmp_path / "in").mkdir()
    before = files_of(query)
    (query / "offsets/4").write_bytes(content)
    torn = files_of(query)
    assert CHECKPOINT.run("inspect", str(query)).exit_code == 2

    done = CHECKPOINT.run("repair", str(query), "--apply", "--stopped", "--json")
    result = json.loads(done.output)
    assert done.exit_code == 1  # the torn entry is left until it is retired
    assert [each["path"] for each in result["left"]] == ["offsets/4"]
    assert any("could not start as it was" in each for each in result["meaning"])
    (newest,) = inspect(query, last=1).batches
    assert newest.offsets == {"0": {"logOffset": 3}}
    assert inspect(query).next.first == newest.batch_id + 1 > 6
    assert validate(query).severity == "warning"

    apply_plan(plan_undo(result["undo"]), stopped=True)
    assert files_of(query) == torn != before


@pytest.mark.parametrize("is_done", [True, False])
def test_offsets_in_a_form_of_the_sources_own_are_sound(query: Path, is_done: bool) -> None:
    for batch_id in range(5):
        text = f"lsn=0/16B37{batch_id}"
        edit(
            query / f"offsets/{batch_id}", lambda old, new=text: f"{old.rpartition(NL)[0]}{NL}{new}"
        )  # type: ignore[misc]
    shutil.rmtree(query / "sources")
    if not is_done:
        remove(query / "commits/4")

    assert validate(query).findings == ()
    assert plan_repair(query).changes == ()
    assert plan_rewind(query, to_batch=2).changes


@pytest.mark.parametrize("offset", ['{"a":1,"a":2}', '{"a":NaN}'])
def test_what_only_a_source_refuses_is_not_torn(query: Path, offset: str) -> None:
    edit(query / "offsets/4", lambda text: text.replace('{"logOffset":4}', offset))
    remove(query / "commits/4")

    assert validate(query).severity == "error"
    assert plan_repair(query).changes == ()


def test_a_file_that_cannot_be_read_is_left(query: Path) -> None:
    remove(query / "commits/4")
    (query / "offsets/.4.crc").unlink()
    (query / "offsets/4").unlink()
    (query / "offsets/4").mkdir()  # stands for one that the disk fails to read
    assert not any(each.path == "offsets/4" for each in plan_repair(query).changes)


def test_a_program_of_penstock_is_repaired(own: Path) -> None:
    (own / "commits/2").write_bytes(b"v1")
    (own / "commits/.2.crc").unlink()
    apply_plan(plan_repair(own))
    assert validate(own).severity is None
    with CheckpointLocation(own) as driver:
        assert driver.undone() == [1, 2]


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "planned"])
@pytest.mark.parametrize("is_noted", [True, False])
def test_what_an_exactly_once_sink_has_is_not_planned_anew(
    tmp_path: Path, *, is_noted: bool, is_done: bool
) -> None:
    """It would be refused at each start, and with new entries nothing could be restored."""
    place = tmp_path / "program"
    with CheckpointLocation(place) as driver:
        for batch_id in range(4):
            line = f'{{"clicks":{{"0":{batch_id}}}}}'
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + batch_id, sources=(line,)))
            if is_done or batch_id < 3:
                driver.commit(batch_id)
    if is_noted:
        note_sink_of(open_storage(place), "lake")
    if is_done:
        (place / "offsets/3").unlink()
        (place / "offsets/.3.crc").unlink()
    else:
        (place / "offsets/3").write_bytes(b"")
    plan = plan_repair(place)
    removed = {each.path for each in plan.changes if not each.path.endswith(".crc")}
    if is_noted and is_done:
        assert removed == set()
        assert any(each.severity == "error" for each in plan.left)
    else:
        assert removed == {"commits/3" if is_done else "offsets/3"}
        told = "output lake writes each batch exactly once: if its sink has this batch"
        assert any(each.startswith(told) for each in plan.meaning) == is_noted

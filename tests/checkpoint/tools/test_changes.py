"""Plans: what they say, that applying them is all or nothing, and how they are taken back."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    Checkpoint,
    FileChange,
    apply_plan,
    inspect,
    plan_promote,
    plan_rewind,
    plan_undo,
    validate,
)
from penstock.checkpoint.tools.barrier import BARRIER, barrier_entry
from penstock.checkpoint.tools.changes import apply
from penstock.errors import CheckpointError, ConfigError
from penstock.storage import Storage
from tests.cli.commands import Commands

from .interruptions import interrupt
from .queries import copy_to_store, write_stateless
from .test_validate import edit

CHECKPOINT = Commands("checkpoint", columns=200)


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """What a query of Spark without state leaves: batches 0 to 4 over files, which are there."""
    return write_stateless(tmp_path / "query", batches=5)


def files_of(place: Path) -> dict[str, bytes]:
    """Return what a location holds, without undo files."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.parent.name != "undo"
    }


def undo_files(place: Path) -> list[Path]:
    return sorted((place / "undo").glob("*"))


def test_a_plan_changes_nothing(query: Path) -> None:
    before = files_of(query)
    printed = CHECKPOINT.succeed("rewind", str(query), "--to-batch", "1")

    assert files_of(query) == before
    assert not (query / "undo").exists()
    assert "create offsets/5" in printed
    assert "create commits/6" in printed
    assert "batch 7 runs next" in printed
    assert "source 0: from entry 2 of its log: 3 files again" in printed
    assert "add --apply" in printed


def test_a_change_is_taken_back_byte_for_byte(query: Path) -> None:
    before = files_of(query)
    done = CHECKPOINT.succeed("rewind", str(query), "--to-batch", "1", "--apply")
    assert validate(query).findings == ()
    (newest,) = inspect(query, batch_ids=[6]).batches
    assert newest.offsets == {"0": {"logOffset": 1}}
    assert newest.next_watermark_ms == 5  # that of the newest
    assert inspect(query).next.first == 7

    command = done.rpartition("penstock checkpoint ")[2].split()
    assert "the location is again as it was" in CHECKPOINT.succeed(*command[:2])
    assert CHECKPOINT.succeed(*command).endswith("\ndone\n")
    assert files_of(query) == before
    again = CHECKPOINT.succeed(*command)
    assert again.endswith("as it was before: the change was taken back already, or never made\n")
    assert json.loads(CHECKPOINT.succeed(*command, "--json"))["applied"] is False
    assert files_of(query) == before


def test_a_location_that_moved_since_is_left_alone(query: Path) -> None:
    plan = plan_rewind(query, to_batch=1)
    write_stateless(query, batches=6)
    before = files_of(query)
    with pytest.raises(CheckpointError, match="has moved since"):
        apply_plan(plan)
    assert files_of(query) == before
    assert undo_files(query) == []

    undo = apply_plan(plan_rewind(query, to_batch=1))
    for name in ("offsets/8", "commits/8"):
        shutil.copy(query / "offsets/6", query / name)
    with pytest.raises(CheckpointError, match="batch 8 was planned since"):
        plan_undo(undo)


@pytest.mark.parametrize("renames_onto", [False, True])
def test_a_query_that_plans_the_batch_too_wins(
    query: Path, monkeypatch: pytest.MonkeyPatch, *, renames_onto: bool
) -> None:
    """All that was changed by then is taken back."""
    plan = plan_rewind(query, to_batch=1)
    last = plan.changes[-2].path  # a commit, when all else is done
    written = plan.changes[0].path if renames_onto else last
    before = files_of(query)
    taken = apply._take_step

    def take_step(storage: Storage, change: FileChange) -> None:
        if change.path == last and change.after is not None:
            storage.create(written, b"v1\n{}", overwrite=renames_onto)
        taken(storage, change)

    monkeypatch.setattr(apply, "_take_step", take_step)
    with pytest.raises(CheckpointError, match="wrote the same file"):
        apply_plan(plan)
    assert files_of(query) == {**before, written: b"v1\n{}"}


def test_no_query_starts_on_half_a_change(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = files_of(query), plan_promote(query, 2)
    interrupt(plan_rewind(query, to_batch=1), monkeypatch, after=3)

    assert "is not finished" in (inspect(query).next.problem or "")
    shown = CHECKPOINT.run("inspect", str(query))
    assert "CANNOT START" in shown.output
    assert shown.exit_code == 2
    (begun,) = undo_files(query)
    (query / "undo/29991231T000000000Z-rewind.json").touch()  # of a command killed before it began
    (finding,) = validate(query).findings
    assert finding.path == BARRIER == "offsets/9223372036854775807"
    assert f"penstock checkpoint undo file://{begun} --apply" in finding.fix
    (query / "undo/29991231T000000000Z-rewind.json").unlink()
    for again in (lambda: plan_rewind(query, to_batch=1), lambda: apply_plan(other)):
        with pytest.raises(CheckpointError, match="is not finished"):
            again()
    assert undo_files(query) == [begun]
    apply_plan(plan_undo(begun))
    assert files_of(query) == before


REWINDS: dict[str, tuple[list[str], int]] = {
    "batch": (["--to-batch", "2"], 2),
    "time": (["--to-timestamp", "2023-11-14T22:13:22.500Z"], 2),
    "milliseconds": (["--to-timestamp", "1700000003000"], 3),
    "shift": (["--shift-by", "3"], 1),
    "offsets": (["--to-offsets", '{"0":{"logOffset":0}}'], 0),
}


@pytest.mark.parametrize("case", REWINDS)
def test_points_to_go_back_to(query: Path, case: str) -> None:
    options, batch_id = REWINDS[case]
    CHECKPOINT.succeed("rewind", str(query), *options, "--apply")
    (newest,) = inspect(query, last=1).batches
    assert newest.offsets == {"0": {"logOffset": batch_id}}
    assert validate(query).findings == ()


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no such batch": (lambda q: plan_rewind(q, to_batch=9), "0 to 4"),
    "no batch by then": (lambda q: plan_rewind(q, to_timestamp_ms=5), "oldest was planned at"),
    "too far": (lambda q: plan_rewind(q, shift_by=5), "give 1 to 4"),
    "two points": (lambda q: plan_rewind(q, shift_by=1, to_batch=1), "exactly one"),
    "unknown source": (lambda q: plan_rewind(q, to_offsets={"7": 1}), "sources are 0"),
    "another form": (lambda q: plan_rewind(q, to_offsets={"0": 1}), "another form"),
    "forward": (lambda q: plan_rewind(q, to_offsets={"0": {"logOffset": 9}}), "goes back"),
    "below 0": (lambda q: plan_rewind(q, to_offsets={"0": {"logOffset": -7}}), "give 0 to 4"),
    "more keys": (
        lambda q: plan_rewind(q, to_offsets={"0": {"logOffset": 1, "x": 2}}),
        "another form",
    ),
    "64 bits": (lambda q: plan_rewind(q, to_offsets={"0": {"logOffset": 2**63}}), "another form"),
    "no number": (
        lambda q: plan_rewind(q, to_offsets={"0": {"logOffset": math.nan}}),
        "are not JSON",
    ),
    "no undo file": (lambda q: plan_undo(q / "undo/1.json"), "no such undo file"),
    "the location": (plan_undo, "it is not an undo file.*the file that --apply named"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_refused(query: Path, case: str) -> None:
    plan, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        plan(query)


@pytest.mark.parametrize(
    ("end", "offset", "message"),
    [
        (
            '{"clicks":{"0":40}}',
            {"clicks": {"0": -5}},
            "clicks 0: -5 is not an offset.*give 0 to 40",
        ),
        ('{"clicks":{"0":40}}', {"clicks": {"0": 41}}, "41 is after 40"),
        ('{"clicks":{"0":40}}', {"clicks": {"0": 1.5}}, "another form"),
        ('{"clicks":{"0":40}}', {"clicks": {"0": 1, "1": 1}}, "another form"),
        ("40", -1, "give 0 to 40"),
        ("40", True, "another form"),
        ('{"version":7,"index":-1}', {"version": 3, "index": -1}, "form of its own"),
        ("lsn=0/16B375", "lsn=0/16B374", "form of its own"),
    ],
)
def test_offsets_that_a_source_cannot_have_are_refused(
    query: Path, end: str, offset: object, message: str
) -> None:
    edit(query / "offsets/4", lambda text: text.replace('{"logOffset":4}', end))
    with pytest.raises(ConfigError, match=message):
        plan_rewind(query, to_offsets={"0": offset})


def test_offsets_of_each_form_are_points(query: Path) -> None:
    for end, offset in (('{"clicks":{"0":40}}', {"clicks": {"0": 0}}), ("40", 40), ("40", 0)):
        edit(query / "offsets/4", lambda text, end=end: f"{text.rpartition(chr(10))[0]}\n{end}")  # type: ignore[misc]
        plan_rewind(query, to_offsets={"0": offset})


def test_offsets_that_are_no_json_are_refused(query: Path) -> None:
    for text in ('{"0":{"logOffset":NaN}}', '{"0":1,"0":2}', "{" * 100_000):
        done = CHECKPOINT.run("rewind", str(query), "--to-offsets", text)
        assert done.exit_code == 2
        assert "--to-offsets" in done.output


def test_source_files_that_are_gone_refuse_a_rewind(query: Path) -> None:
    (query.parent / "in/3.json").unlink()
    with pytest.raises(CheckpointError, match=r"1 of 3 files .* gone: file:///.*3\.json"):
        plan_rewind(query, to_batch=1)
    assert plan_rewind(query, to_batch=3).changes


def test_the_printed_commands_can_be_pasted(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = query.rename(query.with_name("dir %@#x 'ü'"))
    before = files_of(place)
    printed = CHECKPOINT.succeed("rewind", str(place), "--to-batch", "3", "--apply")
    undo = printed.partition("to take it back: penstock checkpoint ")[2]
    CHECKPOINT.succeed(*shlex.split(undo))
    interrupt(plan_rewind(place, to_batch=3), monkeypatch, after=2)
    found = CHECKPOINT.run("validate", str(place)).output
    undo = found.partition("take the change back: penstock checkpoint ")[2].splitlines()[0]
    CHECKPOINT.succeed(*shlex.split(undo))
    assert {path: data for path, data in files_of(place).items() if path in before} == before


def test_names_of_source_files_are_percent_encoded(query: Path) -> None:
    for entry in (query / "sources/0").glob("[0-9]*"):
        edit(entry, lambda text: text.replace("/3.json", "/a%20b%25.json"))
    folder = query.parent / "in"
    (folder / "3.json").rename(folder / "a b%.json")
    assert plan_rewind(query, to_batch=1).changes
    (folder / "a b%.json").rename(folder / "a%20b%25.json")
    with pytest.raises(CheckpointError, match=r"1 of 3 files .* gone: file:///.*a%20b%25\.json"):
        plan_rewind(query, to_batch=1)


def test_a_location_of_which_nothing_can_be_read_is_refused(query: Path) -> None:
    for batch_id in (3, 4):
        (query / f"offsets/{batch_id}").write_bytes(b"")
    with pytest.raises(CheckpointError, match="offsets/4 cannot be read"):
        plan_rewind(query, to_batch=1)


def cut(path: Path) -> None:
    edit(path, lambda text: text[:-1])


def lose(*paths: Path) -> None:
    for path in paths:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()


PASSED_OVER: dict[str, Callable[[Path], object]] = {
    "empty": lambda q: (q / "offsets/4").write_bytes(b""),
    "cut off": lambda q: cut(q / "offsets/4"),
    "the start of the newest": lambda q: lose(q / "offsets/3"),
    "commit": lambda q: (q / "commits/4").write_bytes(b"v1\n{"),
    "commits ahead": lambda q: lose(q / "offsets/4", q / "offsets/3"),
}


@pytest.mark.parametrize("case", PASSED_OVER)
@pytest.mark.parametrize("command", ["rewind", "promote"])
def test_new_entries_pass_over_damaged_ones(query: Path, case: str, command: str) -> None:
    """A dead end otherwise: the query does not start, and its batch has its commit."""
    PASSED_OVER[case](query)
    before = files_of(query)
    assert {f.severity for f in validate(query).findings} == {"error"}
    plan = plan_promote(query, 1) if command == "promote" else plan_rewind(query, to_batch=1)
    assert any("the query could not start as it was (" in each for each in plan.meaning)

    undo = apply_plan(plan)
    following = inspect(query).next
    assert (following.first, following.rerun, following.problem) == (7, (), None)
    assert {f.severity for f in validate(query).findings} <= {"warning", "note"}

    apply_plan(plan_undo(undo))
    assert files_of(query) == before


def test_plans_and_results_are_printed_as_json(query: Path) -> None:
    command = ("rewind", str(query), "--to-batch", "1", "--json")
    plan = json.loads(CHECKPOINT.succeed(*command))
    assert plan["location"] == f"file://{query}"
    assert plan["command"] == "rewind --to-batch 1"
    assert (plan["applied"], plan["undo"]) == (False, None)
    changes = {each["path"]: each["after"] for each in plan["changes"]}
    assert changes.keys() >= {"offsets/5", "commits/6"}
    assert changes["commits/5"] == {"text": (query / "commits/4").read_text()}

    done = json.loads(CHECKPOINT.succeed(*command, "--apply"))
    assert done["applied"] is True
    assert done["undo"] == f"file://{undo_files(query)[0]}"
    back = json.loads(CHECKPOINT.succeed("undo", done["undo"], "--apply", "--json"))
    assert back["applied"] is True
    assert inspect(query).next.first == 5


def test_long_plans_are_printed_by_runs(query: Path) -> None:
    assert len(plan_rewind(query, to_batch=1).changes) == 8
    printed = CHECKPOINT.succeed("rewind", str(query), "--to-batch", "1")
    assert "  create offsets/5  (" in printed
    assert "  and 4 checksums of these files" in printed
    assert ".crc" not in printed.partition("\n- ")[0]


def alter(entry: Path) -> str:
    altered = re.sub("[0-9](?=})", "7", entry.read_text())
    entry.write_text(altered)
    return altered


@pytest.mark.parametrize("path", ["offsets/1", "commits/1"])
def test_an_entry_that_was_altered_is_not_copied(query: Path, path: str) -> None:
    """Its copy would have a checksum that fits."""
    alter(query / path)
    with pytest.raises(CheckpointError, match=f"{path}: it does not fit its checksum"):
        plan_rewind(query, to_batch=1)


@pytest.mark.parametrize("path", ["offsets/4", "commits/4"])
def test_a_newest_entry_that_was_altered_is_passed_over(query: Path, path: str) -> None:
    altered = alter(query / path)
    apply_plan(plan_rewind(query, to_batch=1))
    assert inspect(query).next.problem is None
    folder = (query / path).parent
    names = {entry.name for entry in folder.glob("[0-9]*") if entry.read_text() == altered}
    assert names <= {"4"}


def test_a_location_on_an_object_store_is_changed_without_checksums(query: Path) -> None:
    url = copy_to_store(query)
    undo = apply_plan(plan_rewind(url, to_batch=1))
    new = {path for path in Checkpoint.open(url).files if path.rpartition("/")[2] in ("5", "6")}
    assert new == {"offsets/5", "offsets/6", "commits/5", "commits/6"}
    assert inspect(url).next.first == 7
    apply_plan(plan_undo(undo))
    assert inspect(url).next.first == 5


def test_a_batch_without_commit_does_not_run_again(query: Path) -> None:
    for name in ("commits/4", "commits/.4.crc"):
        (query / name).unlink()
    plan = plan_rewind(query, to_batch=2)
    assert any("batch 4, planned and not committed" in each for each in plan.meaning)
    apply_plan(plan)
    assert inspect(query).next.first == 7
    with pytest.raises(ConfigError, match="not among the batches that are done"):
        plan_rewind(query, to_batch=4)


HALF = '"\\ud800"'
"""JSON can hold half a character; UTF-8 cannot."""


@pytest.mark.parametrize("command", ["rewind", "promote"])
def test_half_a_character_in_a_setting_is_kept(query: Path, command: str) -> None:
    for batch_id in range(5):
        path = query / f"offsets/{batch_id}"
        edit(path, lambda text: text.replace('"conf":{', f'"conf":{{"a":{HALF},'))
    point = ("--to-batch", "1") if command == "rewind" else ("1",)
    CHECKPOINT.succeed(command, str(query), *point, "--apply")
    assert '"a":"\\uD800"' in (query / "offsets/6").read_text()
    assert validate(query).severity in (None, "note")
    assert inspect(query).batches[-1].conf["a"] == "\ud800"
    CHECKPOINT.succeed("inspect", str(query), "--batch", "6")


def test_a_location_whose_name_is_no_utf8_is_changed_as_any(query: Path) -> None:
    place = query.with_name("quer\udcff")
    query.rename(place)
    before = files_of(place)
    CHECKPOINT.succeed("validate", str(place))
    done = CHECKPOINT.succeed("rewind", str(place), "--to-batch", "1", "--apply")
    assert r"quer\udcff" in done
    assert inspect(place).next.first == 7
    (undo,) = undo_files(place)
    CHECKPOINT.succeed("undo", str(undo), "--apply")
    assert files_of(place) == before
    fork = place.with_name("for\udcff")
    CHECKPOINT.succeed("fork", str(place), str(fork), "--apply")
    assert inspect(fork).next.first == 5


def test_promote_takes_the_settings_with_it(query: Path) -> None:
    path = query / "offsets/1"
    path.write_text(path.read_text().replace('partitions":"2"', 'partitions":"7"'))
    (query / "offsets/.1.crc").unlink()
    apply_plan(plan_promote(query, 1))
    (newest,) = inspect(query, last=1).batches
    assert newest.conf == {"spark.sql.shuffle.partitions": "7"}

    apply_plan(plan_rewind(query, to_batch=3))
    (newest,) = inspect(query, last=1).batches
    assert newest.conf == {"spark.sql.shuffle.partitions": "7"}  # that of the newest
    assert newest.offsets == {"0": {"logOffset": 3}}


def test_there_is_nothing_to_do_where_the_query_stands(query: Path) -> None:
    assert plan_rewind(query, to_batch=4).changes == ()
    apply_plan(plan_rewind(query, to_batch=2))
    assert plan_rewind(query, to_batch=2).changes == ()
    assert "nothing to change" in CHECKPOINT.succeed("rewind", str(query), "--to-batch", "2")


def test_shifts_count_from_where_the_query_stands(query: Path) -> None:
    for end in (2, 1):
        count = {2: "2", 1: "1"}[end]
        CHECKPOINT.succeed("rewind", str(query), "--shift-by", count, "--apply")
        (newest,) = inspect(query, last=1).batches
        assert newest.offsets == {"0": {"logOffset": end}}
    with pytest.raises(ConfigError, match="give 1 to 1: the end of batch 0"):
        plan_rewind(query, shift_by=2)


def test_shifts_leave_out_batches_that_cannot_be_read(query: Path) -> None:
    for batch_id in (1, 2):
        (query / f"offsets/{batch_id}").write_bytes(b"")
    plan = plan_rewind(query, shift_by=2)
    assert plan.meaning[0].endswith("to the end of batch 0")


def test_going_ahead_again_says_what_it_means(query: Path) -> None:
    apply_plan(plan_rewind(query, to_batch=1))
    plan = plan_rewind(query, to_batch=4)
    assert any("source 0: ahead, to" in each and "is not read" in each for each in plan.meaning)


def test_named_sources_and_newer_versions_keep_their_form(query: Path) -> None:
    for batch_id in range(5):
        path = query / f"offsets/{batch_id}"
        _, metadata, offset = path.read_text().split("\n")
        names = json.dumps({"sourceMetadataInfo": {}})[1:]
        path.write_text(f"v2\n{metadata[:-1]},{names}\n0:{offset}")
        (query / f"offsets/.{batch_id}.crc").unlink()
    apply_plan(plan_rewind(query, to_batch=2))
    (newest,) = inspect(query, last=1).batches
    assert (newest.offset_version, newest.offsets) == (2, {"0": {"logOffset": 2}})
    assert validate(query).findings == ()


def test_a_time_of_thousands_of_digits_is_a_usage_error(query: Path) -> None:
    assert "nothing to change" in CHECKPOINT.succeed(
        "rewind", str(query), "--to-timestamp", "9" * 4000
    )
    failed = CHECKPOINT.run("rewind", str(query), "--to-timestamp", "9" * 5000)
    assert failed.exit_code == 2
    assert "--to-timestamp" in failed.output


PLANTED: dict[str, Callable[[Path, Path], dict[str, object]]] = {
    "through a linked folder": lambda query, victim: {
        "path": link(query / "sources/link", victim) + "/keys"
    },
    "a linked file": lambda query, victim: {"path": link(query / "sources/file", victim / "keys")},
    "a folder of the user's": lambda _, __: {"path": "journal/keys"},
    "a copy of a linked file": lambda query, victim: {
        "path": "state/0/0/9.delta",
        "before": {"copyOf": link(query / "sources/s", victim / "secret")},
    },
    "a copy of a file outside": lambda _, victim: {
        "path": "state/0/0/9.delta",
        "before": {"copyOf": f"../{victim.name}/secret"},
    },
    "the barrier": lambda _, __: {"path": BARRIER},
    "half a character": lambda _, __: {"path": "offsets/\ud800"},
    "a long name": lambda _, __: {"path": f"sources/0/{'a' * 250}"},
    "many folders": lambda _, __: {"path": f"sources/{'a/' * 3000}b"},
}


def link(path: Path, target: Path) -> str:
    path.symlink_to(target)
    return f"sources/{path.name}"


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_change_reaches_nothing_outside(query: Path, case: str) -> None:
    """Whoever can write to a location can put a barrier and an undo file there."""
    victim = query.with_name("victim")
    victim.mkdir()
    (victim / "secret").write_bytes(b"secret")
    change = {"before": {"text": "planted"}, "after": None, "why": "an entry"}
    change |= PLANTED[case](query, victim)
    fields = {"version": 1, "command": "rewind --to-batch 1", "newest": [4, 4], "meaning": []}
    undo = query / "undo/1-rewind.json"
    undo.parent.mkdir()
    undo.write_text(json.dumps(fields | {"changes": [change]}))
    (query / BARRIER).write_bytes(barrier_entry("token", undo="undo/1-rewind.json"))
    before = files_of(query), files_of(victim), sorted(query.parent.iterdir())

    with pytest.raises((CheckpointError, ConfigError)):
        apply_plan(plan_undo(undo), stopped=True)
    assert (files_of(query), files_of(victim), sorted(query.parent.iterdir())) == before


def test_hostile_text_is_refused_without_a_traceback(query: Path) -> None:
    infinite = b'{"version":1,"command":"a","meaning":[],"newest":[Infinity,1],"changes":[]}'
    (query / "undo").mkdir()
    for text in (b"", b"[" * 200_000, infinite):
        (query / "undo/a.json").write_bytes(text)
        with pytest.raises(ConfigError, match="it is not an undo file"):
            plan_undo(query / "undo/a.json")

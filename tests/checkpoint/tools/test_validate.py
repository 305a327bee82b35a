"""``penstock checkpoint validate``: what it finds, what it says, and how it exits."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.tools import (
    Finding,
    NextBatch,
    inspect,
    last_state,
    validate,
)
from penstock.checkpoint.tools.barrier import BARRIER, barrier_entry
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.waiting import WAIT_S

from .queries import PARTITIONS, copy_to_store, write_query, write_stateless

_VALIDATE = Commands("checkpoint", "validate", columns=200)


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """What a query of Spark leaves: batches 0 to 4, a file source, two partitions of state."""
    return write_query(tmp_path / "query", batches=5)


def edit(path: Path, change: Callable[[str], str]) -> None:
    """Change a file, and its checksum with it."""
    path.write_text(change(path.read_text()))
    path.with_name(f".{path.name}.crc").write_bytes(checksum_of(path.read_bytes()))


def remove(path: Path) -> None:
    """Remove a file and its checksum."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink()


def found(place: Path | str) -> list[tuple[str, str]]:
    """Return what is found, as severity and path."""
    return [(each.severity, each.path) for each in validate(place).findings]


def test_a_sound_location_is_sound(query: Path, own: Path) -> None:
    assert validate(query).findings == ()
    assert validate(query).severity is None
    assert found(own) == []
    assert _VALIDATE.succeed(str(query)).endswith(" files, sound\n")


@pytest.mark.spark
def test_what_spark_leaves_is_sound(counted: Path) -> None:
    assert found(counted) == []


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "empty": (lambda q: (q / "offsets/4").write_bytes(b""), "error", "offsets/4"),
    "empty, older": (lambda q: (q / "offsets/2").write_bytes(b""), "warning", "offsets/2"),
    "cut off": (
        lambda q: edit(q / "offsets/3", lambda text: text.rpartition("\n")[0]),
        "error",
        "offsets/3",
    ),
    "no JSON": (lambda q: edit(q / "commits/4", lambda text: text[:-1]), "error", "commits/4"),
    "no JSON, older": (
        lambda q: edit(q / "commits/3", lambda text: text[:-1]),
        "warning",
        "commits/3",
    ),
    "cut after its version": (
        lambda q: edit(q / "commits/4", lambda text: "v1"),
        "warning",
        "commits/4",
    ),
    "offset no JSON": (
        lambda q: edit(q / "offsets/3", lambda text: text[:-1]),
        "error",
        "offsets/3",
    ),
    "checksum": (
        lambda q: (q / "offsets/1").write_text(
            (q / "offsets/1").read_text().replace("001000", "001001")
        ),
        "warning",
        "offsets/1",
    ),
    "checksum header": (
        lambda q: (q / "offsets/.1.crc").write_bytes(b"crd\0 and more"),
        "warning",
        "offsets/.1.crc",
    ),
    "conf no text": (
        lambda q: edit(q / "offsets/4", lambda text: text.replace('"2"', "2")),
        "error",
        "offsets/4",
    ),
    "unknown field": (
        lambda q: edit(q / "commits/1", lambda text: text.replace("next", "mext")),
        "warning",
        "commits/1",
    ),
    "metadata": (lambda q: remove(q / "metadata"), "error", "metadata"),
    "metadata no id": (
        lambda q: edit(q / "metadata", lambda text: text.replace("id", "ie")),
        "error",
        "metadata",
    ),
    "metadata id no UUID": (  # Error at index 11 in: "...132647a9332X"
        lambda q: edit(q / "metadata", lambda text: text.replace('7"}', 'X"}')),
        "error",
        "metadata",
    ),
    "metadata id empty": (  # Invalid UUID string:
        lambda q: edit(q / "metadata", lambda _: '{"id":""}'),
        "error",
        "metadata",
    ),
    "source entry of another batch": (  # assertion failed SQLSTATE: XXKST
        lambda q: edit(q / "sources/0/4", lambda text: text.replace('Id":4', 'Id":3')),
        "error",
        "sources/0/4",
    ),
    "source entry of batch -9": (
        lambda q: edit(q / "sources/0/3.compact", lambda text: text.replace('Id":0', 'Id":-9')),
        "error",
        "sources/0/3.compact",
    ),
    "gap": (lambda q: remove(q / "offsets/1"), "warning", "offsets/1"),
    "start of the newest": (lambda q: remove(q / "offsets/3"), "error", "offsets"),
    "commit without offsets": (lambda q: remove(q / "offsets/4"), "error", "offsets"),
    "older commit": (lambda q: remove(q / "commits/1"), "warning", "commits/1"),
    "clock": (
        lambda q: edit(
            q / "offsets/2", lambda text: text.replace("1700000002000", "1600000000000")
        ),
        "warning",
        "offsets/2",
    ),
    "watermark": (
        lambda q: edit(q / "offsets/3", lambda text: text.replace('arkMs":3', 'arkMs":1')),
        "warning",
        "offsets/3",
    ),
    "sources": (
        lambda q: edit(q / "offsets/4", lambda text: f"{text}\n-"),
        "warning",
        "offsets/4",
    ),
    "source entry": (lambda q: remove(q / "sources/0/4"), "error", "sources/0/4"),
    "compacted entry": (
        lambda q: remove(q / "sources/0/3.compact"),
        "error",
        "sources/0/3",
    ),
    "source no JSON": (
        lambda q: edit(q / "sources/0/4", lambda text: text[:-1]),
        "error",
        "sources/0/4",
    ),
    "source that is compacted": (
        lambda q: edit(q / "sources/0/2", lambda text: text[:-1]),
        "warning",
        "sources/0/2",
    ),
    "state version": (
        lambda q: remove(q / "state/0/1/5.delta"),
        "error",
        "state/0/1/5.delta",
    ),
    "state chain": (
        lambda q: remove(q / "state/0/1/1.delta"),
        "error",
        "state/0/1/1.delta",
    ),
    "state partition": (
        lambda q: shutil.rmtree(q / "state/0/0"),
        "error",
        "state/0/0",
    ),
    "state empty": (
        lambda q: remove(q / "state/0/1/5.delta") or (q / "state/0/1/5.delta").touch(),
        "error",
        "state/0/1/5.delta",
    ),
    "state checksum": (
        lambda q: (q / "state/0/1/2.delta").write_bytes(b"other"),
        "error",
        "state/0/1/2.delta",
    ),
    "operator": (
        lambda q: edit(q / "state/0/_metadata/metadata", lambda text: text.replace("Info", "info")),
        "error",
        "state/0/_metadata/metadata",
    ),
    "temporary file": (
        lambda q: (q / "offsets/.5.0b1e2d3c.tmp").touch(),
        "note",
        "offsets/.5.0b1e2d3c.tmp",
    ),
    "checksum alone": (lambda q: (q / "metadata.1.crc").touch(), "note", "metadata.1.crc"),
    "checksum in the way": (lambda q: (q / "commits/4").unlink(), "error", "commits/.4.crc"),
    "name": (lambda q: (q / "offsets/notes").touch(), "note", "offsets/notes"),
    "spelling": (lambda q: (q / "offsets/05").touch(), "error", "offsets/05"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_explained(query: Path, damage: str) -> None:
    do, severity, path = DAMAGES[damage]
    do(query)

    validation = validate(query)

    assert [(each.severity, each.path) for each in validation.findings] == [(severity, path)]
    (finding,) = validation.findings
    assert all((finding.what, finding.meaning, finding.fix))
    done = _VALIDATE.run(str(query))
    assert done.exit_code == {"note": 0, "warning": 1, "error": 2}[severity]
    assert f"{severity.upper()} {path}" in done.output
    assert f"to fix: {finding.fix}" in done.output


@pytest.mark.parametrize(
    "offset",
    [
        '{"logOfgset":4}',  # No usable value for logOffset
        '{"logOffset":"one"}',
        '{"logOffset":4,"logOffset":4}',
        "[4]",
        '{"logOffset":NaN}',  # Non-standard token 'NaN'
        '{"logOffset":9223372036854775808}',
    ],
)
@pytest.mark.parametrize("batches", [1, 5])
def test_an_offset_that_a_file_source_refuses_is_an_error(
    tmp_path: Path, offset: str, batches: int
) -> None:
    query, newest = write_query(tmp_path / "query", batches), batches - 1
    edit(query / f"offsets/{newest}", lambda text: text.replace(text.split("\n")[2], offset))

    assert found(query) == [("error", f"offsets/{newest}")]


@pytest.mark.parametrize("offset", ["4", '{"logOffset":4,"more":1}', "-"])
def test_an_offset_that_a_file_source_reads_is_none(query: Path, offset: str) -> None:
    edit(query / "offsets/4", lambda text: text.replace('{"logOffset":4}', offset))

    assert found(query) == []


def test_an_offset_that_is_no_json_is_an_error_where_others_are(query: Path) -> None:
    shutil.rmtree(query / "sources")
    for batch_id in range(5):
        offset = f'{{"clicks":{{"0":{batch_id}}}}}'
        edit(
            query / f"offsets/{batch_id}",
            lambda text, new=offset: text.replace(text.split("\n")[2], new),  # type: ignore[misc]
        )
    assert found(query) == []
    edit(query / "offsets/4", lambda text: text.replace('{"clicks', 'z"clicks'))
    assert found(query) == [("error", "offsets/4")]


def test_state_that_is_gone_is_missed_where_a_commit_names_it(query: Path) -> None:
    shutil.rmtree(query / "state")
    assert found(query) == []  # nothing else tells that the query is stateful

    fields = {"nextBatchWatermarkMs": 5, "stateUniqueIds": {"0": [["id-1"], ["id-2"]]}}
    edit(query / "commits/4", lambda _: f"v2\n{json.dumps(fields)}")
    assert found(query) == [("error", f"state/0/{n}/5_id-{n + 1}") for n in range(PARTITIONS)]


def test_a_newer_version_is_named_in_sparks_words(query: Path) -> None:
    edit(query / "offsets/4", lambda text: text.replace("v1", "v7", 1))

    (finding,) = validate(query).findings

    assert finding.severity == "error"
    assert (
        "The log file was produced by a newer version of Spark and cannot be read by this version."
        " Please upgrade."
    ) in finding.what


def test_a_start_fails_on_what_a_newer_release_wrote(query: Path) -> None:
    edit(query / "commits/4", lambda text: text.replace("v1", "v9", 1))
    for problem in (inspect(query).next.problem, last_state(query).next.problem):
        assert problem is not None
        assert "commits/4 cannot be read: UnsupportedLogVersion" in problem


def test_torn_state_has_a_way_on_without_a_backup(query: Path) -> None:
    (query / "state/0/0/5.delta").write_bytes(b"torn")
    (query / "state/0/0/.5.delta.crc").write_bytes(b"crc\0\0\0\2\0\0\0\0\0")

    (finding,) = validate(query).findings

    assert "checksum" in finding.what
    assert "rewind --drop-state" in finding.fix


def test_the_newest_batch_may_be_uncommitted(query: Path) -> None:
    remove(query / "commits/4")
    remove(query / "state/0/0/5.delta")

    assert found(query) == []  # it runs again, from version 4


def test_a_snapshot_stands_for_all_before_it(query: Path) -> None:
    for partition in range(PARTITIONS):
        folder = query / f"state/0/{partition}"
        shutil.copy(folder / "1.delta", folder / "3.snapshot")
        for version in (1, 2, 3):
            remove(folder / f"{version}.delta")

    assert found(query) == []


def test_what_is_retired_is_not_missing(query: Path) -> None:
    for path in ("offsets/0", "commits/0", "sources/0/0"):
        remove(query / path)

    assert found(query) == []


def test_a_driver_of_penstock_is_stricter(own: Path) -> None:
    edit(own / "commits/0", lambda text: f"{text} ")

    (finding,) = validate(own).findings

    assert (finding.severity, finding.path) == ("error", "commits/0")


def test_the_entry_before_a_batch_that_runs_again_is_missed(own: Path) -> None:
    remove(own / "offsets/0")

    (finding,) = validate(own).findings

    assert (finding.severity, finding.path) == ("error", "offsets")
    assert "offsets/0 not found" in finding.what
    assert inspect(own).next.problem == finding.what


def test_json_holds_what_is_printed(query: Path) -> None:
    remove(query / "commits/1")

    done = _VALIDATE.run(str(query), "--json")

    assert done.exit_code == 1
    printed = json.loads(done.output)
    assert printed["severity"] == "warning"
    assert Finding(**printed["findings"][0]) == validate(query).findings[0]


def test_object_stores_are_checked_as_disks_are(query: Path) -> None:
    remove(query / "commits/1")
    assert found(copy_to_store(query)) == [("warning", "commits/1")]


def test_sparks_own_checksums_tell_the_size(query: Path) -> None:
    checksum = {"algorithm": "CRC32C", "value": 1, "mainFileSize": 3}
    (query / "state/0/0/5.delta.crc").write_text(json.dumps(checksum))

    assert found(query) == [("error", "state/0/0/5.delta")]


def test_odd_names_are_survived(query: Path) -> None:
    Path(os.fsdecode(bytes(query / "offsets") + b"/\xff\x1b")).touch()
    (query / "offsets/7").mkdir()
    (query / "offsets/9").symlink_to("nowhere")
    (query / "commits/99999999999999999999").touch()
    (query / "state/0/0/99999999999999999999.delta").touch()
    (query / "sources/0/9223372036854775807").touch()

    assert _VALIDATE.run(str(query)).exit_code == 2
    assert "next: batch 5" in Commands("checkpoint", "inspect").succeed(str(query))


@pytest.mark.parametrize(
    ("lost", "severity"), [((1, 2), "note"), ((1, 2, 3), "warning"), ((2, 3), "warning")]
)
def test_asynchronous_progress_tracking_leaves_out_entries(
    tmp_path: Path, lost: tuple[int, ...], severity: str
) -> None:
    """Any other query needs the entry before the newest; which one it is only the program says."""
    query = write_stateless(tmp_path / "query", batches=5)
    lose(query, lost)

    assert found(query) == [(severity, f"offsets/{lost[0]} to offsets/{lost[-1]}")]
    assert inspect(query).next == NextBatch(5)


def test_a_query_with_state_leaves_out_no_entries(query: Path) -> None:
    lose(query, (2, 3))  # batch 3 doesn't exist

    assert found(query) == [("error", "offsets")]
    assert "offsets/3 is missing" in (inspect(query).next.problem or "")


def lose(query: Path, batch_ids: Iterable[int]) -> None:
    for batch_id in batch_ids:
        remove(query / f"offsets/{batch_id}")
        remove(query / f"commits/{batch_id}")


def test_an_id_far_from_the_others_keeps_the_query_from_starting(tmp_path: Path) -> None:
    query = write_stateless(tmp_path / "query", batches=5)
    shutil.copy(query / "offsets/4", query / f"offsets/{2**62}")  # More than Int.MaxValue

    assert ("error", "offsets") in found(query)
    assert "too far" in (inspect(query).next.problem or "")


@pytest.mark.parametrize("folder", ["offsets/5", "commits/5", "sources/0/5", "offsets/.5.crc"])
def test_a_folder_in_the_place_of_an_entry_is_an_error(query: Path, folder: str) -> None:
    (query / folder).mkdir()

    assert found(query) == [("error", folder)]
    if folder in ("offsets/5", "commits/5"):
        assert inspect(query).next.problem == f"{folder} is not a file, in the place of an entry"


def test_a_fifo_or_device_in_the_place_of_an_entry_is_an_error(query: Path) -> None:
    os.mkfifo(query / "offsets/5")
    (query / "commits/5").symlink_to("/dev/zero")
    assert found(query) == [("error", "offsets/5"), ("error", "commits/5")]


@pytest.mark.parametrize("undo", ["../x", "", "undo/../../x", "/etc/passwd"])
def test_a_barrier_that_names_no_undo_file_is_a_finding(query: Path, undo: str) -> None:
    (query / BARRIER).write_bytes(barrier_entry("token", undo=undo))
    assert found(query) == [("error", BARRIER)]


def test_folders_of_other_names_are_not_in_the_way(query: Path) -> None:
    for folder in ("offsets/old", "offsets/3.bak", "commits/.old"):
        (query / folder).mkdir()

    assert found(query) == []


def test_a_folder_in_a_log_is_found_on_an_object_store(query: Path) -> None:
    url = copy_to_store(query)
    open_storage(url).create("offsets/5/x", b"")

    assert found(url) == [("error", "offsets/5")]


def test_entries_that_a_driver_of_penstock_ignores_are_not_missed(tmp_path: Path) -> None:
    """One that slept through a purge wrote batch 0 again."""
    place = tmp_path / "own"
    with CheckpointLocation(place) as driver:
        for batch_id in range(6):
            driver.plan(batch_id, OffsetSeq(1000 + batch_id, sources=("0",)))
            driver.commit(batch_id)
    text = (place / "offsets/5").read_text()
    edit(place / "offsets/5", lambda _: text.replace('keptFrom":"0"', 'keptFrom":"4"'))
    for batch_id in (1, 2, 3):
        remove(place / f"offsets/{batch_id}")

    assert found(place) == []
    assert inspect(place).next == NextBatch(6)


def test_a_driver_at_work_is_no_damage(tmp_path: Path) -> None:
    place, begun, stopped = tmp_path / "own", threading.Event(), threading.Event()

    def drive() -> None:
        driver = CheckpointLocation(place)
        driver.acquire(min_batches_to_retain=3)
        for batch_id in itertools.count():
            driver.plan(batch_id, OffsetSeq(1000 + batch_id, sources=("0",)))
            driver.commit(batch_id)
            driver.confirm()
            driver.release_batches()
            driver.retire()
            if batch_id == 3:
                begun.set()
            if stopped.is_set():
                return driver.release()

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        assert begun.wait(WAIT_S)
        for _ in range(20):
            assert [each for each in found(place) if each[0] != "note"] == []
            inspect(place)
    finally:
        stopped.set()
        thread.join()


def test_a_description_of_more_partitions_than_memory_is_one_finding(query: Path) -> None:
    path = query / "state/0/_metadata/metadata"
    edit(path, lambda text: text.replace(f'ions":{PARTITIONS}', f'ions":{2**31 - 1}'))

    assert found(query) == [("error", f"state/0/{PARTITIONS} to state/0/{2**31 - 2}")]

    edit(path, lambda text: text.replace(str(2**31 - 1), str(2**31)))
    assert found(query) == [("error", "state/0/_metadata/metadata")]


def test_a_fifo_in_place_of_an_entry_keeps_no_command_waiting(query: Path) -> None:
    for name in ("metadata", "commits/4", "sources/0/4", "state/0/0/5.delta"):
        remove(query / name)
        os.mkfifo(query / name)

    assert found(query) == [
        ("error", "metadata"),
        ("error", "sources/0/4"),
        ("error", "commits/4"),
    ]
    in_the_way = "commits/4 is not a file, in the place of an entry"
    assert inspect(query).next == NextBatch(5, (4,), problem=in_the_way)


def test_an_offset_at_the_end_of_64_bits_is_survived(query: Path) -> None:
    edit(query / "offsets/4", lambda text: text.replace(":4}", f":{2**63 - 1}}}"))

    assert found(query) == [("error", f"sources/0/5 to sources/0/{2**63 - 1}")]


def test_a_program_is_told_the_way_back_and_of_its_journal(own: Path) -> None:
    (own / "offsets/2").write_bytes(b"")
    (finding,) = (f for f in validate(own).findings if f.path == "offsets/2")
    assert "go back to batch 1" in finding.fix
    assert "for n in $(seq 2 2)" in finding.fix
    assert "`penstock journal verify`" in _VALIDATE.run(str(own)).output


def test_a_program_is_told_the_way_back_from_a_gap(own: Path) -> None:
    with CheckpointLocation(own) as driver:
        for batch_id in (3, 4):
            driver.plan(batch_id, OffsetSeq(1_700_000_000_000, sources=("1",)))
    remove(own / "offsets/3")
    (finding,) = (f for f in validate(own).findings if f.severity == "error")
    assert "go back to batch 2" in finding.fix


def test_a_torn_newest_entry_keeps_the_query_from_starting(query: Path) -> None:
    for name in ("offsets/4", "commits/4"):
        data = (query / name).read_bytes()
        (query / name).write_bytes(b"")
        assert f"{name} cannot be read: Incomplete" in (inspect(query).next.problem or "")
        assert last_state(query).next.problem
        (query / name).write_bytes(data)
    assert inspect(query).next.problem is None


def alter(path: Path) -> None:
    """Change a digit, and not the checksum."""
    text = path.read_text()
    (at, digit), *_ = ((n, c) for n, c in reversed([*enumerate(text)]) if c.isdigit())
    path.write_text(f"{text[:at]}{int(digit) ^ 1}{text[at + 1 :]}")


def uncommit(query: Path) -> None:
    remove(query / "commits/4")


AGAIN, PLANNED, BACK = "runs again", "is planned again", "rewind {} --to-batch 3 --apply"
BY_HAND: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "torn offsets": (
        lambda q: (uncommit(q), edit(q / "offsets/4", lambda text: text[:-1])),
        PLANNED,
        4,
    ),
    "altered offsets": (lambda q: (uncommit(q), alter(q / "offsets/4")), PLANNED, 4),
    "torn commit": (lambda q: (q / "commits/4").write_bytes(b"v1\n{"), AGAIN, 4),
    "empty commit": (lambda q: (q / "commits/4").write_bytes(b""), AGAIN, 4),
    "altered commit": (lambda q: alter(q / "commits/4"), AGAIN, 4),
    "torn offsets of a batch that is done": (
        lambda q: (q / "offsets/4").write_bytes(b""),
        BACK,
        7,
    ),
    "commits ahead": (lambda q: remove(q / "offsets/4"), BACK, 7),
    "start of the newest": (
        lambda q: (q / "offsets/3").write_bytes(b""),
        "rewind {} --to-batch 4 --apply",
        7,
    ),
}
"""The damage, what `validate` says without a backup, and the batch that runs next after it."""


@pytest.mark.parametrize("case", BY_HAND)
def test_what_is_done_by_hand_leaves_a_query_that_starts(tmp_path: Path, case: str) -> None:
    damage, words, following = BY_HAND[case]
    query = write_stateless(tmp_path / "a query", batches=5)
    damage(query)
    errors = [each for each in validate(query).findings if each.severity == "error"]
    (finding,) = (each for each in errors if not each.path.startswith("sources/"))
    assert words.format(f"'file://{query}'") in finding.fix

    by_hand = finding.fix.partition("stop the query and ")[2]
    if by_hand.startswith("remove "):
        for path in by_hand.removeprefix("remove ").partition(":")[0].split(" and "):
            (query / path).unlink()
    else:
        command = by_hand.removeprefix("go back: penstock checkpoint ")
        Commands("checkpoint").succeed(*shlex.split(command))
    assert inspect(query).next.first == following
    assert inspect(query).next.problem is None
    assert validate(query).severity in (None, "warning")


def test_what_a_later_release_wrote_is_not_removed(query: Path) -> None:
    uncommit(query)
    edit(query / "offsets/4", lambda text: text.replace("v1", "v9"))
    (finding,) = validate(query).findings
    assert "remove" not in finding.fix

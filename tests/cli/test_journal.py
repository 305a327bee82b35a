"""``penstock journal ls|cat|verify`` over real journals."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, LogFormatError, MissingBlockError, PenstockError
from penstock.journal import (
    JournalStream,
    RecordFormat,
    commit_consumer,
    retire,
)
from penstock.journal.layout import WriterId
from penstock.journal.losses.skip import skip
from penstock.model import OffsetRange
from penstock.receivers import Status
from penstock.receivers.control import write_status
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import path_of, rewrite, write_blocks
from tests.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
NO_PROGRAM = {
    "committed_ms": None,
    "lag_ms": None,
    "location": None,
    "process": None,
    "is_stopped": False,
}
BLOCKS = [[f"line {number}" for number in range(start, start + 100)] for start in (0, 100, 200)]
ROWS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())])


_JOURNAL = Commands("journal")
run, succeed, fail = _JOURNAL.run, _JOURNAL.succeed, _JOURNAL.fail


@pytest.fixture
def writer(lines: JournalStream) -> WriterId:
    return write_blocks(lines, BLOCKS)


def stream_of(journal: str, schema: Any, records: list[Any]) -> None:
    storage = open_storage(journal)
    write_blocks(JournalStream.create(storage, "other", RecordFormat(schema)), [records])


# -- ls --


def test_ls_tells_of_writers_and_consumers(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    later = write_blocks(lines, [["more"]], close=False)
    commit_consumer(lines, "job", {str(writer): 200})
    commit_consumer(lines, "audit", {str(later): 1})
    retire(lines)
    (stream,) = json.loads(succeed("ls", journal, "--json"))["streams"]
    assert stream.pop("oldest_ms") <= time.time() * 1000
    (job,) = (each for each in stream["consumers"] if each["name"] == "job")
    assert job["lag_ms"] >= 0
    job["lag_ms"] = None
    sizes = [sum(block.size for block in lines.blocks(each)) for each in (writer, later)]
    assert stream == {
        "name": "lines",
        "schema": "string",
        "writers": [
            {
                "writer": "r0-00000000",
                "state": "sealed",
                "blocks": 1,
                "size_bytes": sizes[0],
                "start_offset": 200,
                "end_offset": 300,
                "records": 100,
                "lost": 0,
                "uncommitted_bytes": lines.blocks(writer)[0].size,
            },
            {
                "writer": "r0-00000001",
                "state": "open",
                "blocks": 1,
                "size_bytes": sizes[1],
                "start_offset": 0,
                "end_offset": 1,
                "records": 1,
                "lost": 0,
                "uncommitted_bytes": sizes[1],
            },
        ],
        "receivers": [],
        "consumers": [
            {"name": "audit", "lag_records": 0, "offsets": {"r0-00000001": 1}, **NO_PROGRAM},
            {"name": "job", "lag_records": 101, "offsets": {"r0-00000000": 200}, **NO_PROGRAM},
        ],
        "records": 101,
        "blocks": 2,
        "size_bytes": sum(sizes),
        "rate": 101 / 60,
        "uncommitted_bytes": sum(
            block.size for each in (writer, later) for block in lines.blocks(each)[:1]
        ),
        "max_bytes": None,
        "max_lag_records": None,
        "losses": [],
        "lost_records": 0,
        "problems": [],
    }
    table = succeed("ls", journal)
    assert "r0-00000000  sealed       1      100  200..300" in table
    assert "consumer job: 101 records behind" in table


def test_ls_tells_of_the_bounds_of_receivers_that_did_not_stop(
    lines: JournalStream, journal: str
) -> None:
    said = Status(
        "run", "r0-00000000", "started", "h", 4711, 0, max_bytes=10**6, max_lag_records=2500
    )
    for receiver in ("r0", "r1"):
        write_status(lines, receiver, said)
    assert "1.91 MiB not committed, at most 5000 records behind" in succeed("ls", journal)
    write_status(lines, "r1", replace(said, max_bytes=None))
    assert "bound: at most 5000 records behind" in succeed("ls", journal)
    for receiver in ("r0", "r1"):
        write_status(lines, receiver, replace(said, state="stopped"))
    assert "bound" not in succeed("ls", journal)


def test_ls_hides_writers_without_records(lines: JournalStream, journal: str) -> None:
    for _ in range(3):
        write_blocks(lines, [])
    write_blocks(lines, [["a"]], close=False)
    table = succeed("ls", journal)
    assert "r0-00000000" not in table
    assert "and 3 sealed, with no records left" in table


def test_ls_tells_what_receivers_said(lines: JournalStream, journal: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    said = Status("run", "r0-00000000", "restarting", "worker-7", 4711, 1_795_000_000_000)
    said = replace(said, said_ms=now_ms)
    write_status(lines, "r0", said)
    line = "receiver r0: restarting as r0-00000000 since 2026-11-18 11:06:40+00:00"
    line += ", process 4711 on worker-7"
    assert f"{line}\n" in succeed("ls", journal)
    stopped = replace(said, state="stopped", errors=2, last_error="no route\nto host")
    write_status(lines, "r0", stopped)
    line = line.replace("restarting", "stopped")
    assert f"{line}; 2 errors, the last: no route to host\n" in succeed("ls", journal)


def test_ls_tells_of_receivers_that_say_nothing(lines: JournalStream, journal: str) -> None:
    long_ago_ms = time.time_ns() // 1_000_000 - 7_200_000
    write_status(lines, "r0", Status("run", "r0-00000000", "started", "h", 4711, long_ago_ms))
    (line,) = (each for each in succeed("ls", journal).splitlines() if "receiver r0" in each)
    assert line.endswith("process 4711 on h, which did not stop and says nothing any more")
    (facts,) = json.loads(succeed("ls", journal, "--json"))["streams"][0]["receivers"]
    assert (facts["name"], facts["state"]) == ("r0", "dead")


def test_ls_cuts_no_name_on_a_narrow_terminal(tmp_path: Path) -> None:
    stream = JournalStream.create(open_storage(tmp_path), "s" * 128, RecordFormat("string"))
    writer = write_blocks(stream, [["a"]], receiver="r" * 128)
    listed = Commands("journal", columns=40).succeed("ls", str(tmp_path)).splitlines()
    assert f"{stream.name} (string)" in listed
    assert f"{writer}  sealed       1        1     0..1" in "".join(listed)


@pytest.mark.parametrize("damaged", ["consumers/job.json", "control/r0.status.json"])
def test_a_damaged_file_beside_the_blocks_hides_nothing_else(
    lines: JournalStream, writer: WriterId, journal: str, damaged: str
) -> None:
    lines.storage.create(f"lines/{damaged}", b"{")
    listed = succeed("ls", journal)
    assert str(writer) in listed
    assert "DAMAGED: a con" in listed
    assert f"{lines.storage.uri('lines')}/{damaged}" in listed
    assert len(succeed("cat", journal, "lines").splitlines()) == 300


@pytest.mark.parametrize("before", ["file:", "FILE://", "file://localhost"])
def test_urls_are_taken_as_elsewhere(writer: WriterId, journal: str, before: str) -> None:
    assert str(writer) in succeed("ls", f"{before}{journal}")


def test_ls_of_a_checkpoint_location_looks_into_its_journal(writer: WriterId, journal: str) -> None:
    program = Path(journal).parent
    (program / "offsets").mkdir()
    assert str(writer) in succeed("ls", str(program))
    assert str(writer) in succeed("ls", f"file://{program}", "lines")


def test_a_stream_may_be_called_journal(tmp_path: Path) -> None:
    JournalStream.create(open_storage(tmp_path), "journal", RecordFormat())
    assert "journal (string)" in succeed("ls", str(tmp_path))


def test_ls_goes_on_past_damage(lines: JournalStream, writer: WriterId, journal: str) -> None:
    seal = path_of(lines, writer, 300)
    rewrite(lines.storage, seal, lines.storage.read(seal)[:-9])
    table = succeed("ls", journal)
    assert "damaged" in table
    assert "penstock journal verify" in table


def test_an_empty_journal(tmp_path: Path) -> None:
    assert "holds no streams" in succeed("ls", str(tmp_path))
    assert "0 blocks" in succeed("verify", str(tmp_path))


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_place_that_is_not_there_is_not_made(tmp_path: Path, command: str) -> None:
    error = fail(command, str(tmp_path / "typo"))
    assert isinstance(error, ConfigError)
    assert "there is no folder" in error.message
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("command", ["ls", "cat", "verify"])
def test_an_unknown_stream_is_refused_with_the_known_ones(
    writer: WriterId, journal: str, command: str
) -> None:
    assert "lines" in str(fail(command, journal, "line").hint)


# -- cat --


def test_cat_prints_all_records_in_order(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    write_blocks(lines, [["more", "é [red]x[/red]"]])
    expected = [line for block in BLOCKS for line in block]
    assert succeed("cat", journal, "lines").splitlines() == [*expected, "more", "é [red]x[/red]"]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        (["--from", "298"], 298, 299),
        (["--to", "2"], 0, 1),
        (["--from", "99", "--to", "101"], 99, 100),
        (["--limit", "2"], 0, 1),
        (["--from", "150", "--limit", "1"], 150, 150),
    ],
)
def test_cat_prints_a_range(
    writer: WriterId, journal: str, options: list[str], first: int, last: int
) -> None:
    found = succeed("cat", journal, "lines", *options).splitlines()
    assert found == [f"line {number}" for number in range(first, last + 1)]


@pytest.mark.parametrize("options", [["--limit", "0"], ["--from", "7", "--to", "7"]])
def test_cat_prints_nothing(writer: WriterId, journal: str, options: list[str]) -> None:
    assert succeed("cat", journal, "lines", *options) == ""


def test_cat_as_json_names_writer_and_offset(writer: WriterId, journal: str) -> None:
    (line,) = succeed("cat", journal, "lines", "--from", "299", "--json").splitlines()
    assert json.loads(line) == {"writer": "r0-00000000", "offset": 299, "record": "line 299"}


def test_cat_starts_with_what_is_not_retired(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    commit_consumer(lines, "job", {str(writer): 200})
    retire(lines)
    assert succeed("cat", journal, "lines").splitlines()[0] == "line 200"
    assert isinstance(fail("cat", journal, "lines", "--from", "0"), MissingBlockError)


def test_cat_begins_behind_what_a_retirement_that_was_cut_off_has_left(
    lines: JournalStream, journal: str, writer: WriterId
) -> None:
    commit_consumer(lines, "job", {str(writer): 200})
    lines.storage.delete(path_of(lines, writer, 100))
    assert succeed("cat", journal, "lines").splitlines()[0] == "line 200"
    assert "all sound" in succeed("verify", journal)


def test_offsets_of_several_writers_need_a_name(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    later = write_blocks(lines, [["more"]])
    assert "--writer" in str(fail("cat", journal, "lines", "--from", "0").hint)
    assert succeed("cat", journal, "lines", "--writer", str(later), "--from", "0") == "more\n"
    assert "no writer r9" in fail("cat", journal, "lines", "--writer", "r9").message


def test_cat_of_columns(journal: str) -> None:
    at = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    stream_of(journal, ROWS, [{"id": 1, "at": at, "raw": b"\xff"}])
    row = {"id": 1, "at": "2024-01-01 00:00:00+00:00", "raw": "/w=="}
    assert json.loads(succeed("cat", journal, "other")) == row
    assert json.loads(succeed("cat", journal, "other", "--json"))["record"] == row


def test_cat_of_bytes(journal: str) -> None:
    stream_of(journal, "binary", [b"text", b"\xff\n"])
    assert succeed("cat", journal, "other") == "text\n\\xff\n\n"
    lines = succeed("cat", journal, "other", "--json").splitlines()
    assert [json.loads(line)["record"] for line in lines] == ["dGV4dA==", "/wo="]


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("trapped",)


def test_cat_of_pickles_runs_no_code(
    tmp_path: Path, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream_of(journal, "pickle", [{"a": (1, {2})}, "text", None, Trap()])
    shown = succeed("cat", journal, "other").splitlines()
    assert shown[:3] == ["{'a': (1, {2})}", "text", "None"]
    assert shown[3].startswith("<pickle of ")
    assert "mkdir" in shown[3]
    assert not Path("trapped").exists()
    assert len(succeed("cat", journal, "other", "--json").splitlines()) == 4


def test_cat_reads_no_more_than_it_prints(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    path = path_of(lines, writer, 100)
    rewrite(lines.storage, path, b"damaged")
    assert len(succeed("cat", journal, "lines", "--limit", "100").splitlines()) == 100
    done = run("cat", journal, "lines")
    assert isinstance(done.exception, PenstockError)
    assert len(done.output.splitlines()) == 100


def test_a_closed_pipe_is_no_traceback(lines: JournalStream, journal: str) -> None:
    write_blocks(lines, [["x" * 1000] * 5000])
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
    with subprocess.Popen(
        [*command, "journal", "cat", journal, "lines"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(WAIT_S)


# -- verify --


def test_verify_passes_a_sound_journal(writer: WriterId, journal: str) -> None:
    assert "1 streams, 4 blocks, 300 records" in succeed("verify", journal)
    assert "all sound" in succeed("verify", journal, "lines")


def test_verify_names_file_range_and_fix(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    path = path_of(lines, writer, 100)
    data = bytearray(lines.storage.read(path))
    data[50] ^= 1
    rewrite(lines.storage, path, bytes(data))
    done = run("verify", journal)
    assert done.exit_code == 1
    assert "DAMAGED lines/r0-00000000 records [100, 200)" in done.output
    assert f"file: {lines.storage.uri(path)}" in done.output
    assert "fix: " in done.output
    assert "restore the file from a copy" in done.output
    assert "4 blocks, 200 records" in done.output
    assert "1 DAMAGED" in done.output


def test_verify_finds_a_missing_block(lines: JournalStream, writer: WriterId, journal: str) -> None:
    lines.storage.delete(path_of(lines, writer, 100))
    done = run("verify", journal)
    assert done.exit_code == 1
    assert "MISSING lines/r0-00000000 records [100, 200)" in done.output
    assert f"file: {lines.storage.uri(f'lines/{writer}')}\n" in done.output
    assert "3 blocks, 200 records" in done.output


def test_verify_finds_a_damaged_file_beside_the_blocks(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    lines.storage.create("lines/consumers/job.json", b"{")
    done = run("verify", journal)
    assert done.exit_code == 1
    assert f"file: {lines.storage.uri('lines/consumers/job.json')}" in done.output
    assert "4 blocks, 300 records" in done.output


def test_verify_offers_to_give_up_just_what_is_left(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    lines.storage.delete(path_of(lines, writer, 100))
    skip(lines, OffsetRange(str(writer), 120, 130), "a first part")
    offered = [line for line in run("verify", journal).output.splitlines() if "or skip" in line]
    left = [re.findall(rf"{writer}:\S+", line) for line in offered]
    assert left == [[f"{writer}:100-120"], [f"{writer}:130-200"]]


def test_verify_finds_a_damaged_description_and_goes_on(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    stream_of(journal, "string", ["a"])
    rewrite(lines.storage, "lines/stream.json", b"{")
    done = run("verify", journal)
    assert done.exit_code == 1
    assert "DAMAGED lines" in done.output
    assert "2 streams, 2 blocks, 1 records" in done.output
    assert isinstance(fail("ls", journal), LogFormatError)

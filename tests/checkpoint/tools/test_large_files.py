"""Files larger than any query writes: told, and never read into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.tools import validate
from penstock.checkpoint.tools.barrier import BARRIER
from penstock.errors import PenstockError
from tests.cli.commands import Commands

from .queries import write_query, write_stateless
from .test_validate import found

CHECKPOINT = Commands("checkpoint", columns=200)
GIGABYTES_3 = 3 * 2**30


def grow(path: Path) -> None:
    """Make a file of 3 GB, of which the disk has none."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, GIGABYTES_3)


@contextmanager
def little_memory() -> Iterator[None]:
    """Check that what is done in the block takes far less memory than such a file."""
    before = getrusage(RUSAGE_SELF).ru_maxrss
    yield
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 2**19  # KB


LARGE = {
    "offsets/4",
    "commits/4",
    "metadata",
    "sources/0/4",
    "state/0/_metadata/metadata",
}


def test_entries_of_gigabytes_are_findings_and_no_command_reads_them(tmp_path: Path) -> None:
    query = write_query(tmp_path / "query", batches=5)
    for path in LARGE:
        grow(query / path)
    with little_memory():
        findings = validate(query).findings
        assert {each.path for each in findings if "268,435,456" in each.what} == LARGE
        for name, *options in (
            ("inspect",),
            ("rewind", "--to-batch", "1", "--apply"),
            ("promote", "1", "--apply"),
            ("fork", str(tmp_path / "fork"), "--apply"),
            ("diff", "3", "4"),
        ):
            told(name, str(query), *options)
        grow(query / BARRIER)
        told("rewind", str(query), "--to-batch", "1")
        told("fork", str(tmp_path / "new"), str(query))
    assert [each.path for each in validate(query).findings] == [BARRIER]


def told(*command: str) -> None:
    """Run a command, which may fail with an error of penstock only."""
    done = CHECKPOINT.run(*command)
    assert done.exception is None or isinstance(done.exception, (PenstockError, SystemExit)), done


def test_an_undo_file_of_gigabytes_is_refused(tmp_path: Path) -> None:
    query = write_stateless(tmp_path / "query", batches=5)
    grow(query / "undo/1-rewind.json")
    with little_memory():
        CHECKPOINT.fail("undo", str(query / "undo/1-rewind.json"))


@pytest.mark.parametrize("size", [512, 4096, 4097])
def test_large_files_of_state_are_checked_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    query = write_query(tmp_path / "query", batches=5)
    delta = query / "state/0/0/3.delta"
    delta.write_bytes(os.urandom(size))
    delta.with_name(".3.delta.crc").write_bytes(checksum_of(delta.read_bytes()))
    for module in ("checkpoint", "validation"):
        monkeypatch.setattr(f"penstock.checkpoint.tools.{module}.PIECE_BYTES", 1000)
    assert found(query) == []
    data = bytearray(delta.read_bytes())
    data[-1] ^= 1
    delta.write_bytes(data)
    assert found(query) == [("error", "state/0/0/3.delta")]

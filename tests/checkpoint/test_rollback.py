"""What the hints of a damaged offset log say works: without a backup, back to the batch before."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.errors import LogFormatError, LogGapError, PenstockError
from penstock.storage import open_storage

from .conftest import as_given, offsets_of

NEWEST = 6


@pytest.fixture
def location(tmp_path: Path) -> CheckpointLocation:
    """A location in a folder whose name a shell must have quoted."""
    location = CheckpointLocation(tmp_path / "of $HOME" / "it's")
    with location:
        for batch_id in range(NEWEST + 1):
            location.plan(batch_id, offsets_of(batch_id, 1))
        for batch_id in range(NEWEST + 1):
            location.commit(batch_id)
    return location


def do_as_told(error: PenstockError) -> None:
    """Run the command in an error's hint."""
    (command,) = re.findall(r"`(.*?)`", str(error.hint))
    subprocess.run(["/bin/sh", "-c", command], check=True)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damaged", [1, 4, NEWEST])
@pytest.mark.parametrize("damage", [tear, flip, Path.unlink])
def test_the_hint_leads_back_to_the_batch_before(
    location: CheckpointLocation, damaged: int, damage: Callable[[Path], None]
) -> None:
    root = Path(location.url.removeprefix("file://"))
    damage(root / "offsets" / str(damaged))
    read = location.recover if damage is Path.unlink else partial(location.offsets.get, damaged)
    with pytest.raises((LogFormatError, LogGapError)) as caught:
        read()
    do_as_told(caught.value)
    with location:
        assert location.recover().next_batch_id == damaged
        assert as_given(location.offsets.require(damaged - 1)) == offsets_of(damaged - 1, 1)
        location.plan(damaged, offsets_of(100, 1))
        location.commit(damaged)
    assert as_given(location.offsets.require(damaged)) == offsets_of(100, 1)
    assert location.offsets.orphans() == location.commits.orphans() == ()


def test_without_an_entry_before_it_there_is_no_way_back(location: CheckpointLocation) -> None:
    root = Path(location.url.removeprefix("file://"))
    tear(root / "offsets" / "0")
    with pytest.raises(LogFormatError) as caught:
        location.offsets.get(0)
    assert "go back" not in str(caught.value.hint)


def test_on_an_object_store_the_entries_are_named() -> None:
    location = CheckpointLocation(open_storage("memory://rollback"))
    with location:
        for batch_id in range(3):
            location.plan(batch_id, offsets_of(batch_id, 1))
    location.storage.delete("offsets/1")
    with pytest.raises(LogGapError, match=r"delete the entries 1 to 2 from offsets/ and commits/"):
        location.recover()

"""A full disk and one that turned read-only: real ones, where the test may mount them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError, StorageFullError
from penstock.storage.local import LocalStorage
from tests.mounts import mount, small_disk


@pytest.fixture(name="small_disk")
def a_small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with small_disk(tmp_path / "disk", "256k") as place:
        yield place


def test_a_full_disk(small_disk: Path) -> None:
    storage = LocalStorage(small_disk)
    block = bytes(40_000)
    fitting = 5
    for number in range(fitting):
        storage.create(f"folder/{number}", block)
    with pytest.raises(StorageFullError, match="no space is left") as caught:
        storage.create("folder/more", bytes(100_000))

    assert caught.value.path == "folder/more"
    assert "free space" in (caught.value.hint or "")
    assert len(storage.list("folder")) == fitting
    assert all(storage.read(f"folder/{number}") == block for number in range(fitting))
    assert list(small_disk.rglob(".*.tmp")) == []

    storage.delete("folder/0")
    storage.delete("folder/1")
    storage.create("folder/more", bytes(100_000))


def test_a_disk_that_turned_read_only(small_disk: Path) -> None:
    storage = LocalStorage(small_disk)
    storage.create("folder/file", b"x")
    problem = mount("-o", "remount,ro", str(small_disk))
    assert not problem

    acts: list[Callable[[], None]] = [
        lambda: storage.create("folder/other", b"x"),
        lambda: storage.create("new/file", b"x"),
        lambda: storage.create("folder/file", b"y", overwrite=True),
        lambda: storage.delete("folder/file"),
    ]
    for act in acts:
        with pytest.raises(StorageFullError, match="read-only"):
            act()
    with pytest.raises(ConfigError, match="cannot be created or written to"):
        LocalStorage(small_disk)

    assert storage.read("folder/file") == b"x"
    assert [entry.name for entry in storage.list("folder")] == ["file"]
    assert storage.exists("folder/file")

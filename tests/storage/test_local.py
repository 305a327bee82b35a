"""What LocalStorage does beyond the common contract: opening, removed folders, leftovers."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import AlreadyExistsError, ConfigError, NotFoundError, StorageError
from penstock.storage import Entry
from penstock.storage.base import temporary_name
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls


def test_the_root_is_made_and_left_empty(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "a" / "b")

    assert os.listdir(tmp_path / "a" / "b") == []
    assert storage.url == f"file://{tmp_path}/a/b"
    assert storage.uri("x/y") == f"file://{tmp_path}/a/b/x/y"


def test_an_existing_root_keeps_its_files(tmp_path: Path) -> None:
    LocalStorage(tmp_path).create("file", b"x")

    assert LocalStorage(tmp_path).list() == [Entry("file", size=1)]


def test_a_relative_root_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("here")
    monkeypatch.chdir("/")
    storage.create("file", b"x")

    assert (tmp_path / "here" / "file").read_bytes() == b"x"


def test_without_sync_nothing_is_fsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(os, "fsync", synced.append)
    for unsynced in (storage.without_sync(), pickle.loads(pickle.dumps(storage.without_sync()))):
        unsynced.create("a/file", b"x", overwrite=True)
        assert unsynced.list("a") == [Entry("file", size=1)]
        with pytest.raises(AlreadyExistsError):
            unsynced.create("a/file", b"y")
    assert synced == []
    pickle.loads(pickle.dumps(storage)).create("b", b"x")
    assert synced


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    for root, what in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "cannot be created or written to"),
    ):
        with pytest.raises(ConfigError, match=what) as caught:
            LocalStorage(root)
        assert caught.value.path == str(root)
        assert caught.value.hint
        assert isinstance(caught.value.cause, OSError)


@pytest.mark.parametrize("root", ["a*b", "a[1]", "{a}", "a?", "a\\b", "a\0b"])
def test_roots_that_spark_cannot_scan_are_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(ConfigError, match=r"wildcards to Spark|null byte"):
        LocalStorage(tmp_path / root)

    assert os.listdir(tmp_path) == []


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path) -> None:
    class NoLinks(Syscalls):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    with pytest.raises(ConfigError, match="hard links"):
        LocalStorage(tmp_path, syscalls=NoLinks())

    assert os.listdir(tmp_path) == []


def test_a_file_system_that_cannot_sync_folders_is_refused(tmp_path: Path) -> None:
    class NoFolderSync(Syscalls):
        trial = False

        def link(self, source: str, target: str) -> None:
            self.trial = True
            super().link(source, target)

        def fsync(self, fd: int) -> None:
            if self.trial:
                raise OSError(errno.EINVAL, "Invalid argument")

    with pytest.raises(ConfigError, match="fsync of folders"):
        LocalStorage(tmp_path, syscalls=NoFolderSync())

    assert os.listdir(tmp_path) == []


def test_the_roots_parent_need_not_be_readable(tmp_path: Path) -> None:
    class HiddenParent(Syscalls):
        def open(self, path: str, flags: int) -> int:
            if path == str(tmp_path):
                raise OSError(errno.EACCES, "Permission denied")
            return super().open(path, flags)

    (tmp_path / "root").mkdir()
    storage = LocalStorage(tmp_path / "root", syscalls=HiddenParent())
    storage.create("folder/file", b"x")

    assert storage.list("folder") == [Entry("file", size=1)]
    with pytest.raises(ConfigError, match="cannot be created"):
        LocalStorage(tmp_path / "new", syscalls=HiddenParent())


def test_create_remakes_folders_that_were_removed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.create("a/b/1", b"x")

    shutil.rmtree(tmp_path / "root" / "a")
    storage.create("a/b/2", b"x")
    shutil.rmtree(tmp_path / "root")
    storage.create("a/b/3", b"x")

    assert storage.list("a/b") == [Entry("3", size=1)]


def test_a_file_where_a_folder_is_needed_is_not_a_taken_name(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("file", b"x")

    with pytest.raises(StorageError) as caught:
        storage.create("file/below", b"x")

    assert not isinstance(caught.value, AlreadyExistsError)


def test_a_folder_is_neither_replaced_nor_deleted(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("folder/file", b"x")

    with pytest.raises(AlreadyExistsError):
        storage.create("folder", b"x")
    with pytest.raises(StorageError):
        storage.create("folder", b"x", overwrite=True)
    with pytest.raises(StorageError):
        storage.delete("folder")

    assert storage.read("folder/file") == b"x"
    assert storage.list() == [Entry("folder", is_folder=True)]


def test_leftovers_of_killed_creates_are_not_listed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("file", b"x")
    (tmp_path / ".file.0123456789abcdef.tmp").write_bytes(b"half")

    assert storage.list() == [Entry("file", size=1)]
    assert storage.names() == ["file"]


def test_names_are_durable_and_read_no_status(tmp_path: Path) -> None:
    class WithoutStatus:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.is_file = entry.name, entry.is_file

    class Counted(Syscalls):
        synced = 0

        def fsync(self, fd: int) -> None:
            self.synced += 1
            super().fsync(fd)

        def scan(self, path: str) -> list[Any]:
            return [WithoutStatus(entry) for entry in super().scan(path)]

    LocalStorage(tmp_path).create("log/7", b"x")
    syscalls = Counted()
    storage = LocalStorage(tmp_path, syscalls=syscalls)
    before = syscalls.synced

    assert storage.names("log") == ["7"]
    assert syscalls.synced == before + 1


def test_a_dangling_link_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    storage = LocalStorage(tmp_path)

    assert list(storage.list()) == []
    assert not storage.exists("dangling")


def test_unpickling_touches_nothing(tmp_path: Path) -> None:
    pickled = pickle.dumps(LocalStorage(tmp_path / "root"))
    shutil.rmtree(tmp_path / "root")

    copy = pickle.loads(pickled)

    assert list(copy.list()) == []
    assert not (tmp_path / "root").exists()


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    class CutBeforeRead(Syscalls):
        def pread(self, fd: int, count: int, offset: int) -> bytes:
            os.truncate(tmp_path / "file", 3)
            return super().pread(fd, count, offset)

    storage = LocalStorage(tmp_path, syscalls=CutBeforeRead())
    storage.create("file", b"0123456789")

    with pytest.raises(StorageError, match="ends before its size says"):
        storage.read("file")


def test_files_carry_the_users_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalStorage(tmp_path).create("file", b"x")
    finally:
        os.umask(before)

    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


class Swept(Syscalls):
    """Lets another process sweep before each of the first ``sweeps`` files gets its name."""

    def __init__(self, root: Path, sweeps: int) -> None:
        self._root, self._left = root, sweeps

    def _sweep(self) -> None:
        self._left -= 1
        if self._left >= 0:
            LocalStorage(self._root).sweep("folder")

    def link(self, source: str, target: str) -> None:
        self._sweep()
        super().link(source, target)

    def replace(self, source: str, target: str) -> None:
        self._sweep()
        super().replace(source, target)


def left_by_a_killed_create(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    left = folder / temporary_name("old")
    left.write_bytes(b"unfinished")
    return left


def test_a_sweep_removes_what_killed_creates_left_and_nothing_else(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("folder/file", b"x")
    storage.create("folder/.hidden.tmp", b"x")
    left = left_by_a_killed_create(tmp_path / "folder")
    below = left_by_a_killed_create(tmp_path / "folder" / "below")
    storage.sweep()
    assert left.exists()
    storage.sweep("folder")
    storage.sweep("no/such/folder")
    assert not left.exists()
    assert below.exists()
    assert [entry.name for entry in storage.list("folder")] == [".hidden.tmp", "below", "file"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_create_that_is_under_way_outlives_sweeps(tmp_path: Path, overwrite: bool) -> None:
    storage = LocalStorage(tmp_path)
    storage._syscalls = Swept(tmp_path, sweeps=3)
    storage.create("folder/file", b"content", overwrite=overwrite)
    assert storage.read("folder/file") == b"content"
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_a_swept_create_still_finds_its_name_taken(tmp_path: Path) -> None:
    class Taking(Swept):
        def _sweep(self) -> None:
            super()._sweep()
            if self._left == 0:
                LocalStorage(tmp_path).create("folder/file", b"the other's")

    storage = LocalStorage(tmp_path)
    storage._syscalls = Taking(tmp_path, sweeps=1)
    with pytest.raises(AlreadyExistsError):
        storage.create("folder/file", b"mine")
    assert storage.read("folder/file") == b"the other's"
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_a_create_that_never_gets_its_name_fails(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage._syscalls = Swept(tmp_path, sweeps=10**6)
    with pytest.raises(StorageError, match="cannot create"):
        storage.create("folder/file", b"content")
    assert os.listdir(tmp_path / "folder") == []


def test_what_is_neither_a_file_nor_a_folder_is_not_there(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("folder/file", b"x")
    os.mkfifo(tmp_path / "folder/fifo")

    assert storage.list("folder") == [Entry("file", size=1)]
    assert storage.find() == ["folder/file"]
    assert [each.path for each in storage.walk()] == ["folder/file"]
    assert not storage.exists("folder/fifo")
    with pytest.raises(NotFoundError):
        storage.read("folder/fifo")

"""Every system call of LocalStorage fails once, and then works again.

Whatever the call: the error is one of ours and names the operation, nothing is left behind (no
descriptor, no temporary file unless its removal is what failed), no fsync is tried again, and the
same operation then succeeds or finds the name taken by the whole file.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import AlreadyExistsError, ConfigError, StorageError, StorageFullError
from penstock.storage.local import LocalStorage
from tests.storage.faulty_syscalls import FailingSyscalls

CONTENT = b"0123456789" * 100
ERRORS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS]


class CountingSyscalls(FailingSyscalls):
    """Also remembers what was fsynced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[int] = []

    def fsync(self, fd: int) -> None:
        self.synced.append(os.fstat(fd).st_ino)
        super().fsync(fd)


def open_files(folder: Path) -> list[str]:
    """Return what this process has open in a folder, and the folder itself."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # others close theirs meanwhile
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [each for each in found if each.startswith(str(folder))]


def fail_everywhere(
    base: Path, number: int, act: Callable[[LocalStorage], object]
) -> list[tuple[str, LocalStorage, StorageError]]:
    """Run ``act`` on a fresh storage for each call that it makes, with an error at that call.

    Returns the failed call, a sound storage over the same folder, and the error, for each.
    """
    outcomes: list[tuple[str, LocalStorage, StorageError]] = []
    for fail_at in itertools.count():
        root = base / str(fail_at)
        LocalStorage(root).create("folder/old", CONTENT)
        syscalls = CountingSyscalls()
        storage = LocalStorage(root, syscalls=syscalls)
        syscalls.synced.clear()
        syscalls.fail(number, after=fail_at)
        try:
            act(storage)
        except StorageError as error:
            assert syscalls.failed is not None
            assert len(set(syscalls.synced)) == len(syscalls.synced), "an fsync was tried again"
            outcomes.append((syscalls.failed, LocalStorage(root), error))
        else:
            assert syscalls.failed is None, f"an error at {syscalls.failed} was swallowed"
            return outcomes
        finally:
            assert not open_files(root)
    raise AssertionError("unreachable")


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_create(tmp_path: Path, number: int) -> None:
    outcomes = fail_everywhere(tmp_path, number, lambda s: s.create("new/deep/file", CONTENT))

    calls = [call for call, _, _ in outcomes]
    assert {"mkdir", "open", "write", "fsync", "close", "link", "unlink"} == set(calls)
    for index, (call, storage, error) in enumerate(outcomes):
        assert (error.operation, error.path) == ("create", "new/deep/file")
        assert isinstance(error, StorageFullError) == (
            number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        )
        assert isinstance(error.cause, OSError)
        assert error.cause.errno == number
        assert error.hint
        assert list(tmp_path.rglob(".*.tmp")) == [], f"left behind by an error at {call}"
        if index > calls.index("link"):
            with pytest.raises(AlreadyExistsError):
                storage.create("new/deep/file", CONTENT)
        else:
            storage.create("new/deep/file", CONTENT)
        assert storage.read("new/deep/file") == CONTENT


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_overwrite(tmp_path: Path, number: int) -> None:
    outcomes = fail_everywhere(
        tmp_path, number, lambda s: s.create("folder/old", b"new", overwrite=True)
    )

    assert {"open", "write", "fsync", "close", "replace"} <= {call for call, _, _ in outcomes}
    for _, storage, _ in outcomes:
        assert storage.read("folder/old") in (CONTENT, b"new")
        assert [entry.name for entry in storage.list("folder")] == ["old"]
        storage.create("folder/old", b"new", overwrite=True)
        assert storage.read("folder/old") == b"new"


@pytest.mark.parametrize(
    ("operation", "act", "calls"),
    [
        ("read", lambda s: s.read("folder/old", 5), {"open", "fstat", "pread", "close"}),
        ("list", lambda s: s.list("folder"), {"scan", "open", "fsync", "close"}),
        ("delete", lambda s: s.delete("folder/old"), {"unlink", "open", "fsync", "close"}),
        ("look for", lambda s: s.exists("folder/old"), {"stat"}),
    ],
)
def test_other_operations(
    tmp_path: Path, operation: str, act: Callable[[LocalStorage], object], calls: set[str]
) -> None:
    outcomes = fail_everywhere(tmp_path, errno.EIO, act)

    assert {call for call, _, _ in outcomes} == calls
    for _, storage, error in outcomes:
        assert error.operation == operation
        assert act(storage) == act(LocalStorage.attach(str(storage._root)))


def test_opening(tmp_path: Path) -> None:
    swallowed: list[str] = []
    for fail_at in itertools.count():
        root = tmp_path / str(fail_at)
        syscalls = FailingSyscalls()
        syscalls.fail(errno.EIO, after=fail_at)
        refused = None
        try:
            LocalStorage(root / "deep", syscalls=syscalls)
        except ConfigError as error:
            refused = error
        if syscalls.failed is None:
            break
        if refused is None:
            swallowed.append(syscalls.failed)
        else:
            assert refused.path == str(root / "deep")
            assert isinstance(refused.cause, OSError)
        LocalStorage(root / "deep").create("file", CONTENT)

    # Only the removal of the trial's hidden files may fail without consequence.
    assert swallowed == ["unlink", "unlink"]
    assert fail_at > 10


@pytest.mark.parametrize(
    ("act", "needed"),
    [
        (lambda storage: storage.read("folder/old"), "give this user read permission"),
        (lambda storage: storage.exists("folder/old"), "give this user read permission"),
        (lambda storage: storage.list("folder"), "give this user read permission"),
        (lambda storage: storage.create("folder/new", b""), "give this user read and write perm"),
    ],
    ids=["read", "exists", "list", "create"],
)
def test_a_hint_asks_for_no_more_permission_than_is_needed(
    tmp_path: Path, act: Callable[[LocalStorage], object], needed: str
) -> None:
    """State that others can write is refused at the next start."""
    outcomes = fail_everywhere(tmp_path, errno.EACCES, act)

    assert outcomes
    assert all(needed in str(error.hint) for _, _, error in outcomes)


def test_an_error_names_what_failed(tmp_path: Path) -> None:
    for act, name in [
        (lambda storage: storage.list(), "cannot list file://"),
        (lambda storage: storage.list("folder"), "cannot list folder. "),
    ]:
        for _, _, error in fail_everywhere(tmp_path / name[-4:].strip("/. "), errno.EIO, act):
            assert str(error).startswith(name)
            assert "path= " not in str(error)

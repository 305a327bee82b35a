"""The system calls that LocalStorage makes, each as a method, so that tests can replace it.

The tests have variants that fail at a chosen call and that record calls for crash states.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.storage import posix


class Syscalls:
    """The operating system's own calls. All raise OSError.

    Args:
        sync: False omits fsync: the system writes to disk at a time of its choice.
        file_mode: permissions of files that are created, less the umask.
        folder_mode: permissions of folders that are created.
    """

    _sync = True
    _file_mode = 0o666
    _folder_mode = 0o777

    def __init__(
        self, *, sync: bool = True, file_mode: int = 0o666, folder_mode: int = 0o777
    ) -> None:
        self._sync = sync
        self._file_mode = file_mode
        self._folder_mode = folder_mode

    def open(self, path: str, flags: int) -> int:
        """Open a file or folder; return its descriptor."""
        return os.open(path, flags, self._file_mode)

    def write(self, fd: int, data: memoryview) -> int:
        """Write some of ``data``; return how many bytes."""
        return os.write(fd, data)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Read up to ``count`` bytes at ``offset``."""
        return os.pread(fd, count, offset)

    def fsync(self, fd: int) -> None:
        """Make a file's content, or a folder's names, durable."""
        if self._sync:
            posix.sync(fd)

    def close(self, fd: int) -> None:
        """Close a descriptor; it is closed even if this raises."""
        os.close(fd)

    def link(self, source: str, target: str) -> None:
        """Give a file an additional name; FileExistsError if the name is taken."""
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        """Rename a file; replaces an existing file of that name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        os.mkdir(path, self._folder_mode)

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a path, following symbolic links."""
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder."""
        with os.scandir(path) as entries:
            return list(entries)


def sync_folder(syscalls: Syscalls, folder: str) -> None:
    """Make the names in ``folder`` durable."""
    fd = syscalls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


class DurableFolders:
    """Creates folders at and under ``root`` (absolute), durably. Thread-safe.

    A file is only as durable as every name in its path. So before a file is published in a folder,
    each folder above it must have been fsynced after the name below it was created. Another process
    may have created the folder without having fsynced its parent yet, so an existing folder is not
    necessarily durable.

    Durable folders are remembered, because only its removal makes a folder less durable. After a
    removal the next create fails with ENOENT, and the caller then calls ``forget``.
    """

    def __init__(self, root: str, syscalls: Syscalls) -> None:
        self._root = root
        self._syscalls = syscalls
        self._known: set[str] = set()

    def ensure(self, folder: str) -> None:
        """Create ``folder`` and all folders from the root down to it, durably."""
        for ancestor in self._unknown(folder):
            self._make(ancestor)
            self._known.add(ancestor)

    def forget(self) -> None:
        """Forget all durable folders: a folder was found to be removed."""
        self._known = set()

    def _unknown(self, folder: str) -> Iterator[str]:
        """Yield the folders on the path that are not known to be durable, outermost first."""
        if folder in self._known:
            return
        is_above_root = len(folder) < len(self._root)
        if is_above_root and self._exists(folder):
            return  # only missing folders above the root are created
        parent = os.path.dirname(folder)
        if parent != folder:
            yield from self._unknown(parent)
        yield folder

    def _make(self, folder: str) -> None:
        made = True
        try:
            self._syscalls.mkdir(folder)
        except FileExistsError:
            made = False
        try:
            sync_folder(self._syscalls, os.path.dirname(folder))
        except PermissionError:
            # A root may be in a folder that its user cannot read; then it was created long before.
            if made or folder != self._root:
                raise

    def _exists(self, path: str) -> bool:
        try:
            self._syscalls.stat(path)
        except FileNotFoundError:
            return False
        return True

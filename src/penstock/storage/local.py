"""Storage on a local (or mounted) file system.

``create`` implements the contract in these steps. A crash after any step leaves either nothing or
the whole file, and an error at any step is raised before any caller can depend on the file:

1. The folder and all folders above it are made durable (penstock.storage.syscalls).
2. A temporary file beside the target is written in full, fsynced and closed. A failed fsync has
   discarded its data (Linux marks the pages clean), so it is never retried: the temporary file is
   removed and the error is raised.
3. ``link`` gives it the target's name and refuses to replace an existing one: this is the exclusive
   step, one atomic call of the file system. (``overwrite`` renames over the target instead.)
4. The temporary name is removed, and the folder fsynced: only now does the name survive a crash.

A reader may see a name between 3 and 4. ``list`` therefore fsyncs the folder after its scan: the
names it returns are durable even if the creator dies in between. ``delete`` also fsyncs, so deletes
reach the disk in order.

A killed process may leave a hidden temporary file. ``list`` omits it, nothing reads it, and
``sweep`` removes it. A sweep cannot distinguish it from the temporary file of a create in progress,
and does not have to: before step 3 the create has had no effect, so if its temporary file is gone,
it starts again. No clock and no lock is needed.

Prior art: litestream's ``file.ReplicaClient``, Hadoop's ``CheckpointFileManager``.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any

from penstock.errors import ConfigError
from penstock.storage.base import Entry, FileInfo, Storage, check_path, is_temporary, temporary_name
from penstock.storage.checks import (
    as_buffer,
    check_new_path,
    check_root,
    name_taken,
    slice_bounds,
    storage_error,
)
from penstock.storage.syscalls import DurableFolders, Syscalls, sync_folder
from penstock.storage.trust import check_trusted_file

_log = logging.getLogger("penstock.CheckpointFileManager")
_NO_FOLDER = (FileNotFoundError, NotADirectoryError)
_SWEPT_ATTEMPTS = 10
"""Sweeps are rare (a start, a takeover), so a create hardly ever meets a second one."""


class _SweptError(FileNotFoundError):
    """A sweep removed the temporary file before it got its name."""


class LocalStorage(Storage):
    """Small immutable files under a folder.

    The folder is created if needed, and tested. Raises ConfigError if it cannot be created or
    written to, or if its file system has no hard links or cannot fsync a folder.

    Args:
        root: the folder.
        private: see ``Storage.private``.
        log_writes: log each file that is created at INFO, in the words of Spark's
            CheckpointFileManager.
        syscalls: the system calls; tests replace them.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        private: bool = False,
        log_writes: bool = False,
        syscalls: Syscalls | None = None,
    ) -> None:
        path = os.path.abspath(check_root(os.fspath(root)))
        self._bind(path, private=private, log_writes=log_writes, syscalls=syscalls)
        self._try_out()

    @classmethod
    def attach(
        cls, root: str, *, sync: bool = True, private: bool = False, log_writes: bool = False
    ) -> LocalStorage:
        """Open a folder that another instance has tested, without accessing it."""
        storage = cls.__new__(cls)
        storage._bind(root, sync=sync, private=private, log_writes=log_writes)
        return storage

    def without_sync(self) -> LocalStorage:
        """See Storage.without_sync."""
        return self.attach(
            self._root, sync=False, private=self._private, log_writes=self._log_writes
        )

    def private(self) -> LocalStorage:
        """See Storage.private."""
        return self.attach(self._root, sync=self._sync, private=True, log_writes=self._log_writes)

    def open_folder(self, folder: str) -> LocalStorage:
        """See Storage.open_folder."""
        opened = LocalStorage(self._locate(folder), private=self._private)
        return opened if self._sync else opened.without_sync()

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructor's test is not repeated: many tasks get copies, and some of them only read.
        attach = partial(type(self).attach, sync=self._sync, private=self._private)
        return (attach, (self._root,))

    def _bind(
        self,
        root: str,
        *,
        sync: bool = True,
        private: bool,
        log_writes: bool,
        syscalls: Syscalls | None = None,
    ) -> None:
        self._root = root
        self._sync = sync
        self._private = private
        self._log_writes = log_writes
        modes = {"file_mode": 0o600, "folder_mode": 0o700} if private else {}
        self._syscalls = syscalls or Syscalls(sync=sync, **modes)
        self._folders = DurableFolders(root, self._syscalls)
        self.url = f"file://{root}"

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """See Storage.create."""
        target = self._locate(check_new_path(path))
        content = as_buffer(data, path)
        with self._failures("create", path):
            for attempt in range(_SWEPT_ATTEMPTS):
                try:
                    self._create(target, content, overwrite)
                except _SweptError:
                    if attempt + 1 == _SWEPT_ATTEMPTS:
                        raise
                else:
                    break
            sync_folder(self._syscalls, os.path.dirname(target))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """See Storage.read."""
        target = self._locate(path)
        with self._failures("read", path):
            # Without O_NONBLOCK, opening a FIFO would wait for its writer.
            fd = self._syscalls.open(target, os.O_RDONLY | os.O_NONBLOCK)
            try:
                status = self._syscalls.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "not a file", path)
                if self._private:
                    check_trusted_file(target, status)
                return self._read_exactly(fd, *slice_bounds(start, end, status.st_size))
            finally:
                self._syscalls.close(fd)

    def list(self, folder: str = "") -> Sequence[Entry]:
        """See Storage.list."""
        with self._failures("list", folder):
            return sorted(self._describe(self._scan_durably(folder)))

    def names(self, folder: str = "") -> Sequence[str]:
        """See Storage.names."""
        with self._failures("list", folder):
            entries = self._scan_durably(folder)
            return sorted(e.name for e in entries if not is_temporary(e.name) and e.is_file())

    def walk(self, folder: str = "") -> Sequence[FileInfo]:
        """See Storage.walk."""
        start = len(os.path.join(self._root, ""))
        found = []
        with self._failures("list", folder):
            for entry in self._scan_below(folder):
                with suppress(FileNotFoundError):  # removed since the scan
                    status = entry.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    found.append(FileInfo(entry.path[start:], status.st_size, modified_ms))
        return sorted(found, key=attrgetter("path"))

    def delete(self, path: str) -> None:
        """See Storage.delete."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """See Storage.delete_all; each folder is synced once."""
        # Folders are synced also if a file is gone: the process that removed it may have been
        # killed before its own sync.
        folders = {}
        for path in paths:
            target = self._locate(path)
            folders[os.path.dirname(target)] = path
            with self._failures("delete", path), suppress(*_NO_FOLDER):
                self._syscalls.unlink(target)
        for folder, path in folders.items():
            with self._failures("delete", path), suppress(*_NO_FOLDER):
                sync_folder(self._syscalls, folder)

    def sweep(self, folder: str = "") -> None:
        """See Storage.sweep."""
        parent = self._locate(folder) if folder else self._root
        with self._failures("sweep", folder):
            try:
                entries = self._syscalls.scan(parent)
            except _NO_FOLDER:
                return
            for entry in entries:
                if is_temporary(entry.name):
                    with suppress(OSError):  # for example another user's: it does no harm
                        self._syscalls.unlink(entry.path)

    def exists(self, path: str) -> bool:
        """See Storage.exists."""
        with self._failures("look for", path):
            try:
                status = self._syscalls.stat(self._locate(path))
            except _NO_FOLDER:
                return False
            return stat.S_ISREG(status.st_mode)

    def uri(self, path: str) -> str:
        """See Storage.uri."""
        return f"file://{self._locate(path)}"

    def _scan_durably(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """Return the entries of a folder, whose names survive a power cut; none without it."""
        place = self._locate(folder) if folder else self._root
        try:
            entries = self._syscalls.scan(place)
            sync_folder(self._syscalls, place)
        except _NO_FOLDER:
            return []
        return entries

    def _scan_below(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """Yield the files in a folder and below it."""
        waiting = [self._locate(folder) if folder else self._root]
        while waiting:
            with suppress(*_NO_FOLDER):
                for entry in self._syscalls.scan(waiting.pop()):
                    if entry.is_dir():
                        waiting.append(entry.path)
                    elif entry.is_file():  # else a FIFO, a device, a link to nothing
                        yield entry

    def _locate(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))

    @contextmanager
    def _failures(self, operation: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, operation=operation, path=path, url=self.url) from error

    def _create(self, target: str, content: memoryview, overwrite: bool) -> None:
        """Do steps 1 to 4 without the last fsync; raise _SweptError if a sweep removed the file."""
        temporary, fd = self._open_temporary(target)
        if self._log_writes:
            _log.info(
                "Writing atomically to file://%s using temp file file://%s", target, temporary
            )
        try:
            self._write_durably(fd, content)
            self._give_name(temporary, target, overwrite)
        except BaseException:
            with suppress(OSError):
                self._syscalls.unlink(temporary)
            raise
        if self._log_writes:
            _log.info("Renamed temp file file://%s to file://%s", temporary, target)

    def _open_temporary(self, target: str) -> tuple[str, int]:
        """Open a new file beside ``target``, in a durable folder; return its path and handle."""
        folder, name = os.path.split(target)
        temporary = os.path.join(folder, temporary_name(name))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._folders.ensure(folder)
        try:
            return temporary, self._syscalls.open(temporary, flags)
        except FileNotFoundError:
            # The folder was known, and has been removed since.
            self._folders.forget()
            self._folders.ensure(folder)
            return temporary, self._syscalls.open(temporary, flags)

    def _write_durably(self, fd: int, content: memoryview) -> None:
        """Write, fsync and close; the descriptor is closed in any case."""
        try:
            written = 0
            while written < len(content):
                written += self._syscalls.write(fd, content[written:])
            self._syscalls.fsync(fd)
        except BaseException:
            with suppress(OSError):  # the first error is the informative one
                self._syscalls.close(fd)
            raise
        self._syscalls.close(fd)

    def _give_name(self, temporary: str, target: str, overwrite: bool) -> None:
        try:
            if overwrite:
                self._syscalls.replace(temporary, target)
                return
            self._syscalls.link(temporary, target)
        except FileNotFoundError as error:
            raise _SweptError(*error.args) from error
        except FileExistsError as error:
            raise name_taken(os.path.relpath(target, self._root), self.url) from error
        with suppress(FileNotFoundError):  # swept since
            self._syscalls.unlink(temporary)

    def _read_exactly(self, fd: int, start: int, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            part = self._syscalls.pread(fd, count, start)
            if not part:
                raise OSError(errno.EIO, "the file ends before its size says")
            parts.append(part)
            start += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _describe(self, entries: Sequence[os.DirEntry[str]]) -> Iterator[Entry]:
        for entry in entries:
            name = entry.name
            if is_temporary(name):
                continue
            try:
                if entry.is_dir():
                    yield Entry(name, is_folder=True)
                elif entry.is_file():
                    yield Entry(name, entry.stat().st_size)
            except FileNotFoundError:  # removed since the scan
                continue

    def _try_out(self) -> None:
        """Create and delete a file once, so that an unusable folder is refused now."""
        temporary, second = (os.path.join(self._root, temporary_name("trial")) for _ in range(2))
        try:
            self._folders.ensure(self._root)
            self._syscalls.close(
                self._syscalls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            )
        except OSError as error:
            what = "is a file" if os.path.isfile(self._root) else "cannot be created or written to"
            raise self._refusal(what, "choose a folder that this user can write to") from error
        try:
            self._syscalls.link(temporary, second)
            sync_folder(self._syscalls, self._root)
        except OSError as error:
            raise self._refusal(
                "is on a file system without hard links or without fsync of folders",
                "choose a folder on ext4, xfs, btrfs, apfs, zfs, tmpfs or NFS",
            ) from error
        finally:
            for name in (temporary, second):
                with suppress(OSError):
                    self._syscalls.unlink(name)

    def _refusal(self, what: str, hint: str) -> ConfigError:
        return ConfigError(
            f"storage folder {self._root!r} {what}",
            operation="open storage",
            path=self._root,
            hint=hint,
        )

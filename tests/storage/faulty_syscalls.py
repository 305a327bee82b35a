"""System calls that fail where a test says so; see penstock.storage.syscalls."""

from __future__ import annotations

import os

from penstock.storage.syscalls import Syscalls

__all__ = ["FailingSyscalls"]


class FailingSyscalls(Syscalls):
    """Makes one call fail. ``failed`` is that call's name, or None while it has not come.

    Tests order a failure at 0, 1, 2, ... until ``failed`` stays None: then the code under test has
    met an error at every system call it makes.
    """

    def __init__(self) -> None:
        self.failed: str | None = None
        self._number = 0
        self._remaining = -1

    def fail(self, number: int, *, after: int) -> None:
        """Raise OSError(``number``) once, ``after`` more calls have been made."""
        self.failed = None
        self._number = number
        self._remaining = after

    def _step(self, name: str) -> None:
        self._remaining -= 1
        if self._remaining == -1:
            self.failed = name
            raise OSError(self._number, os.strerror(self._number))

    def open(self, path: str, flags: int) -> int:
        """See Syscalls.open."""
        self._step("open")
        return super().open(path, flags)

    def write(self, fd: int, data: memoryview) -> int:
        """See Syscalls.write. Writes one half, then the rest, so that a file can fail half-way."""
        self._step("write")
        return super().write(fd, data[: (len(data) + 1) // 2])

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """See Syscalls.pread. Reads by halves."""
        self._step("pread")
        return super().pread(fd, (count + 1) // 2, offset)

    def fsync(self, fd: int) -> None:
        """See Syscalls.fsync."""
        self._step("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        """See Syscalls.close. A close that fails has freed its descriptor, as on Linux."""
        super().close(fd)
        self._step("close")

    def link(self, source: str, target: str) -> None:
        """See Syscalls.link."""
        self._step("link")
        super().link(source, target)

    def replace(self, source: str, target: str) -> None:
        """See Syscalls.replace."""
        self._step("replace")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        """See Syscalls.unlink."""
        self._step("unlink")
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        """See Syscalls.mkdir."""
        self._step("mkdir")
        super().mkdir(path)

    def stat(self, path: str) -> os.stat_result:
        """See Syscalls.stat."""
        self._step("stat")
        return super().stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """See Syscalls.fstat."""
        self._step("fstat")
        return super().fstat(fd)

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        """See Syscalls.scan."""
        self._step("scan")
        return super().scan(path)

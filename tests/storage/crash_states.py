"""What a disk may hold after a power cut: record system calls, then enumerate the legal states.

The model is what POSIX lets a file system do, which is less than ext4 gives:

- A file's bytes are safe once it is fsynced. Until then any of these may be found under its name:
  nothing, the first half, zeros in full length, or all of it.
- A change of a folder (a name added, moved or removed) is safe once that folder is fsynced. Until
  then each change may be lost or kept, independently of all others. A rename is one change.
- An fsync of a file does not make its name safe, nor one of a folder that folder's own name.

Prior art: ALICE (Pillai et al., OSDI 2014), CrashMonkey (Mohan et al., OSDI 2018).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.storage.syscalls import Syscalls

__all__ = ["CrashState", "RecordingSyscalls", "Step", "crash_states"]

_FOLDER = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded system call that matters to a crash.

    ``names`` are the names that the call changes, each with the inode it leads to from then on, or
    None when the name is gone. Paths are relative to the recorder's base, "" being the base.
    """

    call: str
    inode: int | None = None
    data: bytes = b""
    folder: str = ""
    names: tuple[tuple[str, int | None], ...] = ()


class RecordingSyscalls(Syscalls):
    """Does the calls under ``base``, an empty folder, and records them in ``steps``."""

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self.steps: list[Step] = []
        self._base = os.path.abspath(base)
        self._inodes: dict[str, int] = {}
        self._opened: dict[int, str] = {}
        self._new_inode = itertools.count()

    def open(self, path: str, flags: int) -> int:
        """See Syscalls.open."""
        fd = super().open(path, flags)
        self._opened[fd] = path
        if flags & os.O_CREAT:
            self._change("create", path, next(self._new_inode))
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        """See Syscalls.write."""
        count = super().write(fd, data)
        inode = self._inodes[self._opened[fd]]
        self.steps.append(Step("write", inode=inode, data=bytes(data[:count])))
        return count

    def fsync(self, fd: int) -> None:
        """See Syscalls.fsync."""
        super().fsync(fd)
        path = self._opened[fd]
        if self.is_folder(fd):
            self.steps.append(Step("fsync", folder=self._relative(path)))
        else:
            self.steps.append(Step("fsync", inode=self._inodes[path]))

    def close(self, fd: int) -> None:
        """See Syscalls.close."""
        super().close(fd)
        del self._opened[fd]

    def link(self, source: str, target: str) -> None:
        """See Syscalls.link."""
        super().link(source, target)
        self._change("link", target, self._inodes[source])

    def replace(self, source: str, target: str) -> None:
        """See Syscalls.replace."""
        super().replace(source, target)
        inode = self._inodes.pop(source)
        self._change("replace", target, inode, also_gone=os.path.basename(source))

    def unlink(self, path: str) -> None:
        """See Syscalls.unlink."""
        super().unlink(path)
        del self._inodes[path]
        self._change("unlink", path, None)

    def mkdir(self, path: str) -> None:
        """See Syscalls.mkdir."""
        super().mkdir(path)
        self._change("mkdir", path, _FOLDER)

    def is_folder(self, fd: int) -> bool:
        """Whether ``fd`` is an open folder."""
        return os.path.isdir(self._opened[fd])

    def _change(
        self, call: str, path: str, inode: int | None, *, also_gone: str | None = None
    ) -> None:
        if inode is not None:
            self._inodes[path] = inode
        folder, name = os.path.split(path)
        names: tuple[tuple[str, int | None], ...] = ((name, inode),)
        if also_gone is not None:
            names += ((also_gone, None),)
        self.steps.append(Step(call, folder=self._relative(folder), names=names))

    def _relative(self, path: str) -> str:
        relative = os.path.relpath(path, self._base)
        return "" if relative == "." else relative


@dataclass(frozen=True, slots=True)
class CrashState:
    """Files (path, content) and folders that are found after a crash, sorted by path."""

    files: tuple[tuple[str, bytes], ...]
    folders: tuple[str, ...]

    def restore(self, base: str | os.PathLike[str]) -> None:
        """Write this state out under ``base``."""
        for folder in self.folders:
            os.makedirs(os.path.join(base, folder), exist_ok=True)
        for path, content in self.files:
            with open(os.path.join(base, path), "wb") as file:
                file.write(content)


def crash_states(steps: Sequence[Step]) -> Iterator[CrashState]:
    """Yield each distinct state that a crash may leave right after ``steps``.

    Their number doubles with each change of a folder that is not yet synced; a sequence that
    syncs as it goes has a handful.
    """
    disk = _Disk()
    for step in steps:
        disk.apply(step)
    seen: set[CrashState] = set()
    for kept in itertools.product((False, True), repeat=len(disk.unsynced)):
        for state in disk.states(list(itertools.compress(disk.unsynced, kept))):
            if state not in seen:
                seen.add(state)
                yield state


@dataclass(slots=True)
class _Disk:
    """What is safe, and what only a file system's cache holds."""

    synced: dict[int, bytes] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    changes: list[Step] = field(default_factory=list)
    """All changes of folders, in order; those in ``unsynced`` may be lost."""
    unsynced: list[int] = field(default_factory=list)
    """Indices of ``changes``."""

    def apply(self, step: Step) -> None:
        if step.names:
            self.unsynced.append(len(self.changes))
            self.changes.append(step)
        elif step.inode is None:
            self.unsynced = [i for i in self.unsynced if self.changes[i].folder != step.folder]
        elif step.call == "write":
            self.written[step.inode] = self.written.get(step.inode, b"") + step.data
        else:
            self.synced[step.inode] = self.written.get(step.inode, b"")

    def states(self, kept: Sequence[int]) -> Iterator[CrashState]:
        """Yield the states in which, of the unsynced changes, just ``kept`` reached the disk."""
        lost = set(self.unsynced) - set(kept)
        files, folders = self._tree(
            step for index, step in enumerate(self.changes) if index not in lost
        )
        inodes = sorted(set(files.values()))
        for contents in itertools.product(*(self._contents(inode) for inode in inodes)):
            content_of = dict(zip(inodes, contents, strict=True))
            found = sorted((path, content_of[inode]) for path, inode in files.items())
            yield CrashState(tuple(found), tuple(sorted(folders)))

    def _contents(self, inode: int) -> set[bytes]:
        synced, written = self.synced.get(inode, b""), self.written.get(inode, b"")
        unsafe = written[len(synced) :]
        possible = {b"", unsafe[: len(unsafe) // 2], bytes(len(unsafe)), unsafe}
        return {synced + rest for rest in possible}

    def _tree(self, changes: Iterator[Step]) -> tuple[dict[str, int], set[str]]:
        """Return the files, and the folders, that can be reached from the base by their names."""
        names: dict[str, int] = {}
        for step in changes:
            for name, inode in step.names:
                path = os.path.join(step.folder, name)
                if inode is None:
                    names.pop(path, None)
                else:
                    names[path] = inode
        reached = {path for path in names if _ancestors(path) <= names.keys()}
        files = {path: names[path] for path in reached if names[path] != _FOLDER}
        return files, {path for path in reached if names[path] == _FOLDER}


def _ancestors(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:count]) for count in range(1, len(parts))}

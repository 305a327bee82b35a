"""Folders that survive a power cut.

A file is only as durable as every name in its path. So before a file is published in a folder, each
folder above it must have been fsynced after the name below it was created. Another process may have
created the folder without having fsynced its parent yet, so an existing folder is not necessarily
durable.

Durable folders are remembered, because only its removal makes a folder less durable. After a
removal the next create fails with ENOENT, and the caller then calls ``forget``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.storage.syscalls import Syscalls


def sync_folder(syscalls: Syscalls, folder: str) -> None:
    """Make the names in ``folder`` durable."""
    fd = syscalls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


class DurableFolders:
    """Creates folders at and under ``root`` (absolute), durably. Thread-safe."""

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

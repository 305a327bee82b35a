"""Folders that survive a power cut.

A file is only as durable as every name on the way to it. So before a file is published in a folder,
each folder above it must have been fsynced after the name below it was made. It does not matter who
made that name: another process may have made the folder and not yet fsynced its parent, so a folder
that is merely there is not known to be durable.

What is known is remembered, because nothing makes a folder less durable but its removal, and a
removed folder shows itself as ENOENT at the next create, upon which the caller calls ``forget``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.storage.syscalls import Syscalls

__all__ = ["DurableFolders", "sync_folder"]


def sync_folder(syscalls: Syscalls, folder: str) -> None:
    """Make the names in ``folder`` durable."""
    fd = syscalls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


class DurableFolders:
    """Makes folders at and under ``root`` (absolute), durably. Thread-safe: it only adds facts."""

    def __init__(self, root: str, syscalls: Syscalls) -> None:
        self._root = root
        self._syscalls = syscalls
        self._known: set[str] = set()

    def ensure(self, folder: str) -> None:
        """Make ``folder`` exist and durable, with all folders from the root down to it."""
        for ancestor in self._unknown(folder):
            self._make(ancestor)
            self._known.add(ancestor)

    def forget(self) -> None:
        """Take nothing for known any more: a folder was found to be removed."""
        self._known = set()

    def _unknown(self, folder: str) -> Iterator[str]:
        """Yield what is not known to be durable on the way to ``folder``, outermost first."""
        if folder in self._known:
            return
        is_above_root = len(folder) < len(self._root)
        if is_above_root and self._exists(folder):
            return  # not ours: only what is missing above the root is made
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
            # A root may stand in a folder that its user cannot read; then it was made long before.
            if made or folder != self._root:
                raise

    def _exists(self, path: str) -> bool:
        try:
            self._syscalls.stat(path)
        except FileNotFoundError:
            return False
        return True

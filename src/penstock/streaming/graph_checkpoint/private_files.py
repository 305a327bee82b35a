"""Files that no one but this user can write, because to read a pickle is to run what it says.

On a local file system a graph checkpoint is only read when the folder and the file belong to this
user and no one else can write them; its files are created so, whatever the umask. On remote stores
the store's own access rules have to say who may write.
"""

from __future__ import annotations

import os
import stat

from penstock.checkpoint.local_files import local_path
from penstock.storage import Storage, local_root, open_storage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.storage.trust import OTHERS_WRITE, check_trusted, check_trusted_path

__all__ = ["check_private_file", "check_private_folder", "open_location", "open_private"]

_REBUILD = (
    "rebuild the graph from the program, which reads none: "
    "StreamingContext.getOrCreate(dir, create, recover='program')"
)


class _PrivateSyscalls(Syscalls):
    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o600)


def open_location(place: str) -> Storage:
    """Open a checkpoint location; a folder that is new gets writable by this user only.

    Raises:
        ConfigError: as ``open_storage``.
    """
    root = local_root(place)
    is_new = root is not None and not os.path.lexists(root)
    storage = open_storage(place)
    if root is not None and is_new:
        os.chmod(root, stat.S_IMODE(os.stat(root).st_mode) & ~OTHERS_WRITE)
    return storage


def open_private(storage: Storage) -> Storage:
    """Return the same place, opened so that files created there are this user's alone."""
    root = local_root(storage.url)
    return storage if root is None else LocalStorage(root, syscalls=_PrivateSyscalls())


def check_private_folder(url: str) -> None:
    """Check that no one else can put files into a checkpoint location; remote ones pass.

    Raises:
        ConfigError: it belongs to another user, or others can write it.
    """
    check_trusted(url, _REBUILD)


def check_private_file(storage: Storage, name: str) -> None:
    """Check that no one else can have written a file; remote ones pass.

    Raises:
        ConfigError: it belongs to another user, or others can write it.
    """
    path = local_path(storage, name)
    if path is not None:
        check_trusted_path(path, _REBUILD)

"""Files that no one but this user can write, because to read a pickle is to run what it says.

On a local file system a graph checkpoint is only read where no other user could have put it
(penstock.storage.trust); its files are this user's alone, whatever the umask. On remote stores the
store's own access rules have to say who may write.
"""

from __future__ import annotations

from penstock.checkpoint.local_files import local_path
from penstock.storage import Storage, local_root, open_storage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.storage.trust import check_trusted, check_trusted_path

__all__ = ["check_private_file", "check_private_folder", "open_location"]

_REBUILD = (
    "rebuild the graph from the program, which reads none: "
    "StreamingContext.getOrCreate(dir, create, recover='program')"
)


def open_location(place: str) -> Storage:
    """Open a checkpoint location; folders that are made for it get writable by this user only.

    Raises:
        ConfigError: as ``open_storage``.
    """
    root = local_root(place)
    if root is None:
        return open_storage(place)
    return LocalStorage(root, syscalls=Syscalls(folder_mode=0o755))


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

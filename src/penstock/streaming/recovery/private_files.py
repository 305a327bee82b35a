"""Files that only this user can write, because reading a pickle runs code in it.

On a local file system a graph checkpoint is read only if no other user could have created it
(penstock.storage.trust); only this user can access its files, regardless of the umask. On remote
stores the store's access rules decide who may write.
"""

from __future__ import annotations

from penstock.checkpoint.local_files import local_path
from penstock.storage import Storage, local_root, open_storage
from penstock.storage.file_manager import OpenStorage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.storage.trust import check_trusted, check_trusted_path

_REBUILD = (
    "rebuild the graph from the program, which reads none: "
    "StreamingContext.getOrCreate(dir, create, recover='program')"
)


def open_location(place: str, file_manager: OpenStorage | None = None) -> Storage:
    """Open a checkpoint location; folders created for it are writable by this user only.

    Files that are created are logged at INFO, unless a file manager of the program's own opens it.

    Raises:
        ConfigError: as ``open_storage``, or what the file manager raises.
    """
    if file_manager is not None:
        return file_manager(place)
    root = local_root(place)
    if root is None:
        return open_storage(place, log_writes=True)
    return LocalStorage(root, log_writes=True, syscalls=Syscalls(folder_mode=0o755))


def check_private_folder(url: str) -> None:
    """Check that no other user can create files in a checkpoint location; remote ones pass.

    Raises:
        ConfigError: it belongs to another user, or others can write it.
    """
    check_trusted(url, _REBUILD)


def check_private_file(storage: Storage, name: str) -> None:
    """Check that no other user can have written a file; remote ones pass.

    Raises:
        ConfigError: it belongs to another user, or others can write it.
    """
    path = local_path(storage, name)
    if path is not None:
        check_trusted_path(path, _REBUILD)

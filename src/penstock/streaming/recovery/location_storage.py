"""Opens checkpoint locations, which may hold a pickled graph (see penstock.storage.trust)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from penstock.conf import CHECKPOINT_FILE_MANAGER
from penstock.errors import ConfigError, PenstockError
from penstock.storage import CheckpointFileManager, Storage, local_root, open_storage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.storage.trust import check_trusted

OpenStorage = Callable[[str], Storage]
"""Opens the storage of a URL."""
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


def check_unpickled(url: str) -> None:
    """Check that no other user could have written a location, or a graph checkpoint in it.

    Raises:
        ConfigError: another user could.
    """
    check_trusted(url, _REBUILD)


def load_file_manager(class_path: str) -> OpenStorage:
    """Return what opens storages of the class with that import path.

    Raises:
        ConfigError: the class cannot be imported, or is not a CheckpointFileManager. What is
            returned raises it if the class cannot open a URL.
    """
    module, _, name = class_path.rpartition(".")
    try:
        kind: Any = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything
        raise _refused(
            class_path, f"cannot be imported ({type(error).__name__}: {error})"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, CheckpointFileManager)):
        raise _refused(class_path, "is not a subclass of penstock.storage.CheckpointFileManager")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise _refused(class_path, f"does not define {', '.join(missing)}")

    make: Any = kind  # a Storage itself takes no URL

    def open_with_it(url: str) -> Storage:
        try:
            storage: Storage = make(url)
        except PenstockError:
            raise
        except Exception as error:
            why = f"cannot open {url} ({type(error).__name__}: {error})"
            raise _refused(class_path, why) from error
        if not isinstance(getattr(storage, "url", None), str):
            raise _refused(class_path, f"sets no attribute url when it opens {url}")
        return storage

    return open_with_it


def _refused(class_path: str, why: str) -> ConfigError:
    return ConfigError(
        f"setting {CHECKPOINT_FILE_MANAGER} is {class_path!r}, which {why}",
        operation="open checkpoint location",
        ids={"setting": CHECKPOINT_FILE_MANAGER},
        hint="give the import path of a subclass of penstock.storage.CheckpointFileManager that is "
        "made with a URL, in a module that driver and executors can import (--py-files); a class "
        "of the JVM belongs in spark.sql.streaming.checkpointFileManagerClass",
    )

"""Files of a checkpoint location, listed and read in bulk, and never written.

What only reads must not disturb: no lock is taken, nothing is created or made durable, so neither
permission to write nor a stopped query is needed. A running query retires files at any moment; one
that is gone when it is read was retired since it was listed.

Entries of logs and what else is parsed are read whole, up to MOST_BYTES, far above what any query
writes: a larger file is an error, and is not read. Files of state have no such limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from penstock.errors import NotFoundError, StorageError
from penstock.storage import FileInfo, Storage, local_root

T = TypeVar("T")
R = TypeVar("R")

FOLDERS = ("commits", "offsets", "sources", "state")
"""The folders of a checkpoint location that are read: Spark's own."""

Content = bytes | StorageError
"""What a file holds, or why it cannot be read."""

MOST_BYTES = 256 * 2**20

_REQUESTS_AT_ONCE = 32


def list_files(storage: Storage) -> dict[str, FileInfo]:
    """Return the files at the root of a location and below FOLDERS, by path; none without one.

    Folders of other names (a journal, RDDs) may be huge and are not read.

    Raises:
        StorageError: a folder cannot be listed.
    """
    entries = storage.list()
    found = {e.name: FileInfo(e.name, e.size) for e in entries if not e.is_folder}
    folders = [entry.name for entry in entries if entry.is_folder and entry.name in FOLDERS]
    return {**found, **list_folders(storage, folders)}


def list_folders(storage: Storage, folders: Sequence[str]) -> dict[str, FileInfo]:
    """Return the files in folders and below, by path; one request for each where it can be.

    Raises:
        StorageError: a folder cannot be listed.
    """
    listings = _at_once(storage, storage.walk, folders)
    return {each.path: each for files in listings for each in files}


def inner_folders(storage: Storage, folder: str, files: Iterable[str]) -> list[str]:
    """Return what is in a folder and no file, as paths; ``files`` are all that are below it.

    On local disks also FIFOs, devices, and links to such or to nothing.
    """
    if (root := local_root(storage.url)) is not None:
        with suppress(OSError), os.scandir(f"{root}/{folder}") as entries:  # no file's status
            return sorted(f"{folder}/{each.name}" for each in entries if not each.is_file())
        return []
    # An object store has no empty folders.
    parts = [path.removeprefix(f"{folder}/").split("/") for path in files]
    return sorted({f"{folder}/{each[0]}" for each in parts if len(each) > 1})


def read_entries(
    storage: Storage, files: Mapping[str, FileInfo], paths: Iterable[str]
) -> dict[str, Content]:
    """Return what files hold, by path, without those that are gone; one request for each.

    ``files`` tells their sizes, by path: what is too large is an error, and not read.
    """
    wanted = list(paths)
    refused = {p: _too_large(files[p]) for p in wanted if p in files and _is_too_large(files[p])}
    wanted = [path for path in wanted if path not in refused]

    def read(path: str) -> Content | None:
        try:
            return read_if_there(storage, path)
        except StorageError as error:
            return error

    contents = zip(wanted, _at_once(storage, read, wanted), strict=True)
    return {**{path: data for path, data in contents if data is not None}, **refused}


def _is_too_large(info: FileInfo) -> bool:
    is_state = info.path.startswith("state/") and "/_metadata/" not in info.path
    return info.size > MOST_BYTES and (not is_state or info.path.endswith(".crc"))


def _too_large(info: FileInfo) -> StorageError:
    return StorageError(
        f"it has {info.size:,} bytes, more than the {MOST_BYTES:,} up to which such files are read",
        operation="read",
        path=info.path,
        hint="no query writes such an entry: restore it from a backup",
    )


def read_if_there(storage: Storage, path: str) -> bytes | None:
    """Return what a file holds; None without it. Raises StorageError when it cannot be read."""
    try:
        return storage.read(path)
    except NotFoundError:
        return None


def _at_once(storage: Storage, call: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
    """Return the results of calls, many at a time where each waits for a server."""
    if len(arguments) < 2 or local_root(storage.url) is not None:
        return [call(argument) for argument in arguments]
    with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(arguments))) as pool:
        return list(pool.map(call, arguments))

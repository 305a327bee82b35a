"""Fills a new location with files: all of them, or no query starts there.

    lock -> barrier -> files -> nothing else is there -> log of the sink -> barrier removed

Invariants:

1. A location that holds anything else is refused: other files, folders, links. No file is ever
   overwritten or removed here, so whatever goes wrong, nothing that another one wrote is lost.
2. The barrier (penstock.checkpoint.tools.barrier) is there before the first file and until the last
   one is durable; it says where the files come from. One command at a time fills
   (penstock.checkpoint.tools.changes.hold).
3. What was begun is completed by a command with the same origin, and up to the same batch of it:
   files that are there are compared, and missing ones are created. If they differ, that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.driver_lock import LOCK_NAME
from penstock.checkpoint.tools.barrier import barriers_in, is_barrier, origin_of
from penstock.checkpoint.tools.changes.hold import hold_location, raise_barrier
from penstock.checkpoint.tools.changes.links import find_link
from penstock.checkpoint.tools.changes.plan import FileChange
from penstock.checkpoint.tools.reading import FOLDERS, OF_PROGRAMS, list_files, read_entries
from penstock.errors import AlreadyExistsError, CheckpointError, ConfigError
from penstock.storage import FileInfo, Storage, open_storage
from penstock.storage.names import is_temporary

__all__ = ["check_free", "fill_location"]

_OPERATION = "fill checkpoint location"


def check_free(storage: Storage, origin: str) -> bytes | None:
    """Check that a location is empty, or was begun to be filled from the same origin.

    Returns the barrier of what was begun.

    Raises:
        ConfigError: it is neither.
    """
    files = _files_in(storage)
    (found,) = read_entries(storage, files, barriers_in(files)[-1:]).values() or (b"",)
    barrier = found if isinstance(found, bytes) else b""
    is_begun = origin_of(barrier) == origin
    known = (*FOLDERS, *OF_PROGRAMS) if is_begun else FOLDERS
    others = [e.name for e in storage.list() if e.is_folder and e.name not in known]
    if (files and not is_begun) or others or find_link(storage) is not None:
        raise _not_empty(storage)
    return barrier if is_begun else None


def fill_location(
    target: str,
    origin: str,
    files: Iterable[tuple[str, bytes]],
    *,
    last_batch: int | None = None,
    sink: Iterable[FileChange] = (),
) -> None:
    """Create a location with these files, by path.

    Args:
        target: its path or URL.
        origin: where the files come from.
        files: what they hold.
        last_batch: the newest batch of an origin that may move on: whoever completes the copy ends
            it there.
        sink: the entries with which the log of the query's sink begins.

    Raises:
        ConfigError: it is not empty.
        CheckpointError: another command fills it, or began to fill it with something else.
        StorageError: a file cannot be read or written; the same call completes the copy.
    """
    storage = open_storage(target)
    with hold_location(storage):
        check_free(storage, origin)
        hold = raise_barrier(storage, copy_of=origin, last_batch=last_batch)
        if hold.is_first and [*_files_in(storage)] != [hold.barrier]:  # filled, or used, since
            hold.release()
            raise _not_empty(storage)
        written = {LOCK_NAME}  # of a program that was refused since
        for path, data in files:
            hold.check()
            _put_file(storage, path, data)
            written.add(path)
        if others := {path for path in _files_in(storage) if not is_barrier(path)} - written:
            raise _differs(storage, min(others))
        for change in sink:
            hold.check()
            assert change.root is not None
            assert isinstance(change.after, bytes)
            _put_file(open_storage(change.root), change.path, change.after)
        hold.release()


def _put_file(storage: Storage, path: str, data: bytes) -> None:
    """Create a file; one of the same content is as good.

    Raises:
        CheckpointError: there is one of other content.
    """
    try:
        storage.create(path, data)
    except AlreadyExistsError as error:
        if storage.read(path) != data:
            raise _differs(storage, path) from error


def _files_in(storage: Storage) -> dict[str, FileInfo]:
    """Return the files of a location, without temporary ones that a kill may leave."""
    found = list_files(storage).items()
    return {path: info for path, info in found if not is_temporary(path.rpartition("/")[2])}


def _not_empty(storage: Storage) -> ConfigError:
    return ConfigError(
        "the new checkpoint location is not empty",
        operation=_OPERATION,
        path=storage.url,
        hint="give a folder that does not exist yet",
    )


def _differs(storage: Storage, path: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is of an earlier attempt to fill this location, and is not part of this copy: the"
        " origin has moved meanwhile",
        operation=_OPERATION,
        path=storage.url,
        hint="delete the folder (no query starts on it as it is), and give the command again",
    )

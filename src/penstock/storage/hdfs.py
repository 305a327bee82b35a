"""Storage on HDFS by hdfs-native, which needs no JVM, and why the invariants of base hold there.

1. A file is written under a temporary name, closed and renamed. The NameNode renames onto no
   existing file (rename2 without overwrite, one step under its lock): the name is the lock.
2. ``close`` returns when the DataNodes have fsynced the block's files and folders (the client sets
   ``syncBlock`` on its last packet). The NameNode answers when its edit log is on disk.
3. The edit log has one order. A listing may show a name shortly before it is durable; what its
   reader writes then is durable only together with that name.
4. Every call is bounded. While the NameNode is away, operations are repeated. A repeated create
   may refuse its own file: nothing was acknowledged, so a false refusal is safe.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EACCES, EDQUOT, ENOSPC, ENOTDIR, EROFS
from functools import partial
from typing import Any

from hdfs_native import Client, WriteOptions

from penstock.bounded_call import returns_in_time
from penstock.errors import PenstockError, StorageError
from penstock.patience import Patience
from penstock.storage import checks
from penstock.storage.base import Entry, FileInfo, Storage, check_path, is_temporary, temporary_name
from penstock.storage.trust import check_trusted_owner
from penstock.storage.urls import url_refusal

_log = logging.getLogger("penstock.CheckpointFileManager")
_CALL_S = 60.0  # for one call: the client has no limit
_FIRST_S, _PATIENCE_S = 15.0, 180.0  # before the NameNode's first answer, and after it
_UNFINISHED_S = 600.0  # a younger temporary file may be of a create in progress; clocks differ
_CONF = {"dfs.client.failover.max.attempts": "3"}
_users: dict[str, str] = {}
_clients: dict[tuple[int, str], Client] = {}
"""By process: a client does not survive a fork, and to drop it in the child would hang."""
_AWAY = re.compile(r"not answer|SafeMode|Standby|Retriable|IOError\(|DataTransfer|in time")
_LOGIN = "run kinit or set KRB5_CLIENT_KTNAME; a token is for the host and port that it names"
_ANSWERS: tuple[tuple[str, int | None, str], ...] = (
    ("is not a directory", ENOTDIR, "a file stands where a folder is needed: choose another path"),
    ("QuotaExceeded", EDQUOT, "see hdfs dfs -count -q -v; raise the quota, or free space"),
    ("could only be written to 0 of", ENOSPC, "see hdfs dfsadmin -report: no DataNode has room"),
    ("SafeMode", EROFS, "wait until it has left safe mode: hdfs dfsadmin -safemode get"),
    ("SASL|Sasl|GSS|InvalidToken", EACCES, _LOGIN),
    ("AccessControl", EACCES, "give this user read and write permission there"),
    ("not answer|InvalidArg", None, "check the address, HADOOP_CONF_DIR, and that all nodes run"),
    ("", None, ""),
)
"""What an answer of the NameNode says (mostly the name of Java's exception), and what helps."""


class HdfsStorage(Storage):
    """Small immutable files under a URL of ``hdfs`` or ``viewfs``; see ``open_storage``.

    It is tried out if it is opened without ``wait_s``, the time for which operations are repeated.
    """

    def __init__(
        self, url: str, private: bool = False, log_writes: bool = False, wait_s: float | None = None
    ) -> None:
        scheme, _, rest = url.partition("://")
        authority, _, path = rest.rstrip("/").partition("/")
        if not path or "@" in authority or ":" in path:
            what = "has a colon in its path" if ":" in path else "names no folder of HDFS"
            raise url_refusal(url, what, f"write {scheme}://namenode:8020/path")
        self._service, self._root = f"{scheme}://{authority}", f"/{check_path(path)}"
        self.url = checks.check_root(self._service + self._root)
        self._private, self._log_writes, self._wait_s = private, log_writes, wait_s or _FIRST_S
        if wait_s is None:
            self._try_out()

    @classmethod
    def attach(cls, url: str) -> HdfsStorage:
        """Open a URL without a request, to read."""
        return cls(url, wait_s=_FIRST_S)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self._private, self._log_writes, _PATIENCE_S))

    def private(self) -> HdfsStorage:
        """See Storage.private: files have mode 600, and are read if only this user can write."""
        return type(self)(self.url, True, self._log_writes, self._wait_s)

    def open_folder(self, folder: str) -> HdfsStorage:
        """See Storage.open_folder."""
        url = f"{self.url}/{check_path(folder)}"
        return type(self)(url, self._private, self._log_writes, self._wait_s)

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """See Storage.create."""
        target = self._locate(checks.check_new_path(path))
        content = bytes(checks.as_buffer(data, path))
        if self._log_writes:
            _log.info("Writing atomically to %s using a temp file", self.uri(path))
        try:
            self._do("create", path, lambda: self._put(target, content, overwrite))
        except FileExistsError as error:
            raise checks.name_taken(path, self.url) from error

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """See Storage.read."""
        return bytes(self._do("read", path, lambda: self._read(self._locate(path), start, end)))

    def list(self, folder: str = "") -> Sequence[Entry]:
        """See Storage.list."""
        found = ((each.path.rpartition("/")[2], each) for each in self._statuses(folder))
        kept = ((name, each) for name, each in found if not is_temporary(name))
        return sorted(Entry(name, each.length, each.isdir) for name, each in kept)

    def walk(self, folder: str = "") -> Sequence[FileInfo]:
        """See Storage.walk."""
        found, folders, start = list[FileInfo](), [folder], len(self._root) + 1
        for each in (each for folder in folders for each in self._statuses(folder)):
            if each.isdir:
                folders.append(each.path[start:])
            else:
                found.append(FileInfo(each.path[start:], each.length, each.modification_time))
        return sorted(found)

    def delete(self, path: str) -> None:
        """See Storage.delete."""
        self._do("delete", path, lambda: self._call("delete", self._locate(path)), False)

    def exists(self, path: str) -> bool:
        """See Storage.exists."""
        found = self._info(self._locate(path))
        return found is not None and not found.isdir

    def sweep(self, folder: str = "") -> None:
        """See Storage.sweep."""
        before_ms = (time.time() - _UNFINISHED_S) * 1000
        for each in self._statuses(folder):
            if each.modification_time < before_ms and is_temporary(each.path.rpartition("/")[2]):
                with suppress(OSError):
                    self._call("delete", each.path)

    def uri(self, path: str) -> str:
        """See Storage.uri."""
        return f"{self.url}/{check_path(path)}"

    def _locate(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _put(self, target: str, content: bytes, overwrite: bool) -> None:
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/{temporary_name(name)}"
        options = WriteOptions(permission=0o600 if self._private else 0o644, overwrite=False)

        def write() -> None:
            client = _client(self._service)
            if self._private:  # a folder that comes with a file has the mode of its parent
                client.mkdirs(folder, 0o700, create_parent=True)
            writer = client.create(temporary, options)
            writer.write(content)  # if it fails, to close it would hide why; its deletion ends it
            writer.close()

        try:
            self._ask(write)
            self._call("rename", temporary, target, overwrite)
        except BaseException:
            with suppress(Exception):  # the first error is the informative one
                self._call("delete", temporary)
            raise

    def _read(self, place: str, start: int, end: int | None) -> bytes:
        reader = self._call("read", place)
        if self._private:
            self.check_owner(place)
        first, count = checks.slice_bounds(start, end, len(reader))
        # Past the end the client panics; of a file that is being written it returns nothing.
        data: bytes = self._ask(lambda: reader.read_range(first, count)) if count else b""
        if len(data) != count:
            raise OSError(f"{place} ends before its size says")
        return data

    def check_owner(self, place: str = "") -> None:
        """Refuse a file that another user could have written; all else passes."""
        place = place or self._root
        status = self._info(place)
        if status is None or status.isdir:
            return
        if self._service not in _users:
            self._try_out()
        check_trusted_owner(self._service + place, status, _users[self._service])

    def _info(self, place: str) -> Any:
        return self._do("look for", place, lambda: self._call("get_file_info", place), None)

    def _statuses(self, folder: str) -> Sequence[Any]:
        place = self._locate(folder) if folder else self._root
        ask = partial(self._ask, lambda: [*_client(self._service).list_status(place)])
        found = self._do("list", folder, ask, [])
        return [] if [each.path for each in found if not each.isdir] == [place] else found

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._ask(lambda: getattr(_client(self._service), method)(*arguments))

    def _ask(self, call: Callable[[], Any]) -> Any:
        """Return what a call of the client returns; raise OSError for whatever it raises."""
        answers: list[Any] = []
        try:
            if returns_in_time(lambda: answers.append(call()), _CALL_S):
                return answers[0]
        except RuntimeError as error:
            number = _meaning(str(error))[1]
            raise (OSError(number, str(error)) if number else OSError(str(error))) from error
        except OSError as error:
            if type(error) is OSError:  # a connection's, which has no error number
                raise OSError(f"HDFS does not answer: {error}") from error
            raise
        # The connection may be dead without a sign: the next call makes another.
        _clients.pop((os.getpid(), self._service), None)
        raise TimeoutError(f"HDFS does not answer within {_CALL_S:g} s")

    def _do(self, operation: str, path: str, call: Callable[[], Any], *missing: Any) -> Any:
        """Return what a call returns, or ``missing``; repeat it while the NameNode is away."""
        patience = Patience(f"Trying to {operation} again", within_s=self._wait_s)
        while True:
            try:
                found = call()
                self._wait_s = _PATIENCE_S
                return found
            except (PenstockError, FileExistsError):
                raise
            except Exception as error:
                if missing and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    return missing[0]
                raised = checks.storage_error(error, operation=operation, path=path, url=self.url)
                raised.hint = _meaning(str(error))[2] or raised.hint
                if not _AWAY.search(str(error)):
                    raise raised from error
                raised.__cause__ = error
                patience.bear(raised)
                time.sleep(1)

    def _try_out(self) -> None:
        """Create one file twice: the second time must be refused."""
        trial = f"{self._root}/{temporary_name('trial')}"

        def is_exclusive() -> bool:
            self._put(trial, b"a block, for which a DataNode needs room", True)
            _users[self._service] = self._call("get_file_info", trial).owner
            try:
                self._put(trial, b"", False)
            except FileExistsError:
                return True
            finally:
                self._call("delete", trial)
            return False

        try:
            if not self._do("open storage", "", is_exclusive):
                raise url_refusal(self.url, "allowed a second exclusive create", "update HDFS")
        except StorageError as error:
            raise url_refusal(self.url, "cannot be written to", error.hint or "") from error.cause


def _client(service: str) -> Client:
    key = os.getpid(), service
    if key not in _clients:
        try:
            _clients[key] = Client(service, _CONF)
        except RuntimeError as error:
            if "No NameNode hosts found" not in str(error):
                raise
            _clients[key] = Client(f"{service}:8020", _CONF)  # no name service: Hadoop's port
    return _clients[key]


def _meaning(text: str) -> tuple[str, int | None, str]:
    return next(each for each in _ANSWERS if re.search(each[0], text))

"""Storage on HDFS by hdfs-native, a client in Rust that needs no JVM.

Invariants, by which those of penstock.storage.base hold:

1. A file is written under a temporary name, closed and renamed. The NameNode renames onto no
   existing file (rename2 without overwrite, one step under its lock): the name is the lock.
2. ``close`` returns when the DataNodes have fsynced the block's files and folders (the client sets
   ``syncBlock`` on its last packet). The NameNode answers when its edit log is on disk.
3. The edit log has one order. A listing may show a name shortly before it is durable; what its
   reader writes then is durable only together with that name.
4. Every call is bounded. A create of which a call took too long does not go on to its rename.
5. While the NameNode is away, operations are repeated. A repeated create may find the name taken by
   itself, and refuses it as any other: nothing was acknowledged, so a false refusal is safe.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EACCES, EDQUOT, ENOSPC, ENOTDIR, EROFS
from typing import Any

from hdfs_native import Client, WriteOptions

from penstock.bounded_call import returns_in_time
from penstock.errors import ConfigError, PenstockError, StorageError
from penstock.storage import checks
from penstock.storage.base import Entry, FileInfo, Storage, check_path
from penstock.storage.names import is_temporary, temporary_name
from penstock.storage.permit import permitted

__all__ = ["HdfsStorage"]

_log = logging.getLogger("penstock.CheckpointFileManager")
_CALL_S = 60.0
"""How long a call may take: the client has no limit."""
_FIRST_PATIENCE_S, _PATIENCE_S = 15.0, 180.0
"""How long operations are repeated: before the first answer of the NameNode, and after it."""
_AGAIN_S = 1.0
_SWEPT_ATTEMPTS = 10
_UNFINISHED_S = 600.0
"""A younger temporary file may belong to a create in progress, also where clocks differ."""
_CONF = {"dfs.client.failover.max.attempts": "3"}
_clients: dict[tuple[int, str], Client] = {}
"""By process: a client does not survive a fork, and to drop it in the child would hang."""
_users: dict[str, str] = {}
_AWAY = re.compile(r"is away|SafeMode|Standby|RetriableException|IOError\(")
_ADDRESS = "check the address and that the NameNode runs; name services are from HADOOP_CONF_DIR"
_LOGIN = (
    "run kinit, or set KRB5_CLIENT_KTNAME to a keytab; a token of HADOOP_TOKEN_FILE_LOCATION is "
    "for one host and port, which the URL has to name in the same words"
)
_ANSWERS: tuple[tuple[str, int | None, str], ...] = (
    ("is not a directory", ENOTDIR, "a file stands where a folder is needed: choose another path"),
    ("QuotaExceeded", EDQUOT, "see hdfs dfs -count -q -v; raise the quota, or free space"),
    ("could only be written to 0 of", ENOSPC, "see hdfs dfsadmin -report: no DataNode has room"),
    ("SafeMode", EROFS, "wait until it has left safe mode: hdfs dfsadmin -safemode get"),
    ("SASL|Sasl|GSS|InvalidToken|SIMPLE authentication", EACCES, _LOGIN),
    ("AccessControl", EACCES, "give this user read and write permission there"),
    ("is away", None, _ADDRESS),
)
"""What an answer of the NameNode says (mostly the name of Java's exception), and what helps."""


class HdfsStorage(Storage):
    """Small immutable files under a URL of ``hdfs`` or ``viewfs``; see ``open_storage``.

    ``wait_s`` is how long an operation is repeated. Without it the location is tried out; raises
    ConfigError if it cannot be written to.
    """

    def __init__(
        self, url: str, private: bool = False, log_writes: bool = False, wait_s: float | None = None
    ) -> None:
        scheme, _, rest = url.partition("://")
        authority, _, path = rest.rstrip("/").partition("/")
        if not path or "@" in authority or ":" in path:
            what = "has a colon in its path" if ":" in path else "names no folder of HDFS"
            raise _refusal(url, what, f"write {scheme}://namenode:8020/path, without a colon in it")
        self._service, self._root = f"{scheme}://{authority}", f"/{check_path(path)}"
        self.url = checks.check_root(self._service + self._root)
        self._private, self._log_writes = private, log_writes
        self._wait_s = _FIRST_PATIENCE_S if wait_s is None else wait_s
        if wait_s is None:
            self._try_out()

    @classmethod
    def attach(cls, url: str) -> HdfsStorage:
        """Open a URL without a request, to read."""
        return cls(url, wait_s=_FIRST_PATIENCE_S)

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
            self._do("create", path, lambda: self._publish(target, content, overwrite))
        except FileExistsError as error:
            raise checks.name_taken(path, self.url) from error

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """See Storage.read."""
        place = self._locate(path)
        found: bytes = self._do("read", path, lambda: self._read(place, start, end))
        return found

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
        place = self._locate(path)
        self._do("delete", path, lambda: self._call("delete", place), False)

    def exists(self, path: str) -> bool:
        """See Storage.exists."""
        place = self._locate(path)
        found = self._do("look for", path, lambda: self._call("get_file_info", place), None)
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

    def _publish(self, target: str, content: bytes, overwrite: bool) -> None:
        folder, _, name = target.rpartition("/")
        for attempt in range(_SWEPT_ATTEMPTS):
            try:
                return self._put(f"{folder}/{temporary_name(name)}", target, content, overwrite)
            except FileNotFoundError:  # a sweep took the temporary file, or a deleter its folder
                if attempt + 1 == _SWEPT_ATTEMPTS:
                    raise
                if self._private:  # a folder that comes with a file has the mode of its parent
                    self._call("mkdirs", folder, 0o700, True)

    def _put(self, temporary: str, target: str, content: bytes, overwrite: bool) -> None:
        mode = 0o600 if self._private else 0o644
        options = WriteOptions(permission=mode, overwrite=False, create_parent=not self._private)
        writer = self._call("create", temporary, options)
        try:
            try:
                if content:
                    _bounded(lambda: writer.write(content))
            finally:
                _bounded(writer.close)  # also ends the lease
            self._call("rename", temporary, target, overwrite)
        except BaseException:
            with suppress(Exception):  # the first error is the informative one
                self._call("delete", temporary)
            raise

    def _read(self, place: str, start: int, end: int | None) -> bytes:
        reader = self._call("read", place)
        if self._private:
            self._check_owner(place)
        first, count = checks.slice_bounds(start, end, len(reader))
        # Past the end the client panics; of a file that is being written it returns nothing.
        data: bytes = _bounded(lambda: reader.read_range(first, count)) if count else b""
        if len(data) != count:
            raise OSError(f"{place} ends before its size says")
        return data

    def _check_owner(self, place: str) -> None:
        """Refuse a file that another user could have written, whoever may write to its folder."""
        if self._service not in _users:
            self._try_out()
        status = self._call("get_file_info", place)
        if status.owner != _users[self._service] or status.permission & 0o022:
            raise ConfigError(
                f"{place} belongs to {status.owner} with mode {status.permission:o}, so others "
                "could have written it, and reading pickles there runs code",
                operation="check who can write",
                path=self._service + place,
                hint=f"if you trust it, run as its owner, or hdfs dfs -chmod -R go-w {self.url}",
            )

    def _statuses(self, folder: str) -> Sequence[Any]:
        place = self._locate(folder) if folder else self._root
        found = self._do("list", folder, lambda: self._call("list_status", place), [])
        return [] if [each.path for each in found if not each.isdir] == [place] else found

    def _call(self, method: str, *arguments: Any) -> Any:
        client = _client(self._service)

        def call() -> Any:
            answer = getattr(client, method)(*arguments)
            return [*answer] if method == "list_status" else answer

        try:
            return _bounded(call)
        except TimeoutError:  # the connection may be dead without a sign: the next call makes one
            _clients.pop((os.getpid(), self._service), None)
            raise

    def _do(self, operation: str, path: str, call: Callable[[], Any], *missing: Any) -> Any:
        """Return what a call returns, or ``missing``; repeat it while the NameNode is away."""
        until_s, text = time.monotonic() + self._wait_s, ""
        while True:
            try:
                found = call()
            except (PenstockError, FileExistsError):
                raise
            except Exception as error:
                if missing and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    return missing[0]
                facts = {"operation": operation, "path": path, "url": self.url}
                failure = checks.storage_error(error, **facts)
                failure.hint = _answer(str(error))[1] or failure.hint
                if not _AWAY.search(str(error)) or time.monotonic() > until_s:
                    raise failure from error
                if not text:
                    text = f"for up to {self._wait_s:g} s this is tried again: {error}"
                    _log.warning("%s, %s", failure, text)
                time.sleep(_AGAIN_S)
            else:
                self._wait_s = _PATIENCE_S
                return found

    def _try_out(self) -> None:
        """Create one file twice: the second time must be refused."""
        trial = f"{self._root}/{temporary_name('trial')}"

        def is_exclusive() -> bool:
            self._publish(trial, b"a block, for which a DataNode needs room", True)
            _users[self._service] = self._call("get_file_info", trial).owner
            try:
                self._publish(trial, b"", False)
            except FileExistsError:
                return True
            finally:
                self._call("delete", trial)
            return False

        try:
            if not self._do("open storage", "", is_exclusive):
                raise _refusal(self.url, "allowed a second exclusive create", "update HDFS")
        except StorageError as error:
            raise _refusal(self.url, "cannot be written to", error.hint) from error.cause


def _client(service: str) -> Client:
    key = os.getpid(), service
    if key not in _clients:
        try:
            _clients[key] = Client(service, _CONF)
        except RuntimeError as error:
            if "No NameNode hosts found" not in str(error):
                raise _refusal(service, "is not known to Hadoop", _ADDRESS) from error
            _clients[key] = Client(f"{service}:8020", _CONF)  # as Hadoop does
    return _clients[key]


def _bounded(call: Callable[[], Any]) -> Any:
    """Return what a call of the client returns; raise OSError for whatever it raises."""
    answers: list[Any] = []
    try:
        with permitted():
            if returns_in_time(lambda: answers.append(call()), _CALL_S):
                return answers[0]
    except RuntimeError as error:
        raise OSError(_answer(str(error))[0], str(error)) from error
    except OSError as error:
        if type(error) is OSError:  # a connection's, which has no error number
            raise OSError(f"the NameNode is away: {error}") from error
        raise
    raise TimeoutError(f"the NameNode is away: no answer within {_CALL_S:g} s")


def _answer(text: str) -> tuple[int | None, str | None]:
    """Return the error number of a NameNode's answer, and what helps."""
    found = (each for each in _ANSWERS if re.search(each[0], text))
    return next(((number, hint) for _, number, hint in found), (None, None))


def _refusal(url: str, what: str, hint: str | None) -> ConfigError:
    what = f"storage URL {url!r} {what}"
    return ConfigError(what, operation="open storage", path=url, hint=hint or _ADDRESS)

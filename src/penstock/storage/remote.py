"""Storage on any fsspec file system that can create a file exclusively.

Object stores make a file visible in one step when its upload ends, and acknowledge it when it is
durable, which gives invariants 1, 2 and 4; penstock.storage.protocols covers invariant 3. Listings
are strongly consistent on every supported protocol, provided that fsspec does not answer from its
own cache; so the cache is off.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from operator import attrgetter
from typing import Any

import fsspec
from fsspec.exceptions import FSTimeoutError

from penstock.errors import AlreadyExistsError, ConfigError, PenstockError, StorageError
from penstock.storage.base import Entry, FileInfo, Storage, check_path, is_temporary, temporary_name
from penstock.storage.checks import (
    as_buffer,
    check_new_path,
    check_root,
    name_taken,
    slice_bounds,
    storage_error,
)
from penstock.storage.protocols import EXCLUSIVE, REFUSED, Protocol
from penstock.storage.urls import HDFS_SCHEMES

_log = logging.getLogger("penstock.CheckpointFileManager")

# fsspec's memory files are one dictionary per process, where "create" first checks and then writes.
_MEMORY_LOCK = threading.Lock()

# S3 answers 409 to a conditional write that overlaps another: neither succeeded, so repeat it.
_CONFLICT, _PRECONDITION_FAILED = 409, 412
_CONFLICT_ATTEMPTS = 8

_UPLOAD_S = 120.0
_LEAST_BYTES_PER_S = 256 << 10
"""An upload fails if it takes longer than _UPLOAD_S and its size at this rate."""
_MOST_OBJECTS = 1000
"""S3 takes no more in one request to delete."""


# What s3fs, gcsfs, adlfs and fsspec's memory call the time at which a file was written.
_MODIFIED_KEYS = ("LastModified", "mtime", "last_modified", "created")


class FsspecStorage(Storage):
    """Small immutable files under an fsspec URL.

    Raises ConfigError if the URL or its protocol cannot be used, if the driver is not installed, or
    if a test at opening shows that the location cannot be written to or that creates are not
    exclusive. With ``log_writes`` each file that is created is logged at INFO.
    """

    def __init__(self, url: str, *, log_writes: bool = False) -> None:
        self._bind(_check_url(url))
        self._log_writes = log_writes
        self._try_out()

    @classmethod
    def attach(cls, url: str) -> FsspecStorage:
        """Open a URL that another instance has tested, without a request to the store."""
        storage = cls.__new__(cls)
        storage._bind(_check_url(url))
        return storage

    def __reduce__(self) -> tuple[Any, ...]:
        # Many tasks get copies; none of them needs to repeat the constructor's test.
        return (type(self).attach, (self.url,))

    def _bind(self, url: str) -> None:
        self.url = url
        self._log_writes = False
        scheme, _, rest = url.partition("://")
        protocol = _protocol(scheme, url)
        self._files, self._root = _connect(url, protocol)
        self._uri_root = f"{protocol.spark_scheme}://{rest}"
        self._creating: AbstractContextManager[Any] = (
            _MEMORY_LOCK if scheme == "memory" else nullcontext()
        )

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """See Storage.create."""
        content = as_buffer(data, check_new_path(path))
        if self._log_writes:  # without a temporary file: an upload is visible when it has ended
            _log.info("Writing atomically to %s in one upload", self.uri(path))
        self._put(path, content, overwrite)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """See Storage.read."""
        location = self._locate(path)
        with self._failures("read", path):
            if start == 0 and end is None:
                return bytes(self._files.cat_file(location))
            if end is not None and 0 <= start < end:
                # Mostly the caller knows the size, and one request does it. The error of a range
                # that begins past the end differs from driver to driver.
                with suppress(Exception):
                    data = bytes(self._files.cat_file(location, start=start, end=end))
                    if len(data) == end - start:
                        return data
            # Stores disagree on ranges that go past the end, so the bounds are resolved here.
            first, count = slice_bounds(start, end, self._size(location))
            if count == 0:
                return b""
            return bytes(self._files.cat_file(location, start=first, end=first + count))

    def list(self, folder: str = "") -> Sequence[Entry]:
        """See Storage.list."""
        location = self._locate(folder) if folder else self._root
        with self._failures("list", folder):
            try:
                found = self._files.ls(location, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted(_describe(found, location), key=attrgetter("name"))

    def walk(self, folder: str = "") -> Sequence[FileInfo]:
        """See Storage.walk."""
        location = self._locate(folder) if folder else self._root
        with self._failures("list", folder):
            try:
                found = self._files.find(location, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        start = len(self._root)
        return sorted(
            FileInfo(path[start:].lstrip("/"), int(info["size"]), _modified_ms(info))
            for path, info in found.items()
            if path != location
        )

    def delete(self, path: str) -> None:
        """See Storage.delete."""
        with self._failures("delete", path), suppress(FileNotFoundError):
            self._files.rm_file(self._locate(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """See Storage.delete_all."""
        if len(paths) > 1:
            with self._failures("delete", paths[0]), suppress(FileNotFoundError):
                _bulk_delete(self._files, [self._locate(path) for path in paths])
                return
        # One file; or a driver stopped at one that is not there, and left the rest.
        super().delete_all(paths)

    def exists(self, path: str) -> bool:
        """See Storage.exists."""
        with self._failures("look for", path):
            try:
                return bool(self._files.info(self._locate(path))["type"] == "file")
            except FileNotFoundError:
                return False

    def uri(self, path: str) -> str:
        """See Storage.uri."""
        return f"{self._uri_root.rstrip('/')}/{check_path(path)}"

    def _locate(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    @contextmanager
    def _failures(self, operation: str, path: str) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:  # drivers pass on their libraries' exceptions
            raise storage_error(error, operation=operation, path=path, url=self.url) from error

    def _put(self, path: str, data: memoryview, overwrite: bool) -> None:
        content = bytes(data)  # the only form that all drivers accept
        with self._failures("create", path):
            try:
                with self._creating:
                    self._upload(
                        self._locate(path), content, "overwrite" if overwrite else "create"
                    )
            except OSError as error:
                if overwrite or not _says_taken(error):
                    raise
                raise name_taken(path, self.url) from error

    def _upload(self, location: str, content: bytes, mode: str) -> None:
        limit_s = _UPLOAD_S + len(content) / _LEAST_BYTES_PER_S
        # aiohttp waits without a limit for a server's leave to send the body (100 Continue).
        # An upload beyond the limit is cancelled, so that it does not write later.
        options = {"timeout": limit_s} if self._files.async_impl else {}
        for attempt in range(1, _CONFLICT_ATTEMPTS + 1):
            try:
                self._files.pipe_file(location, content, mode=mode, **options)
            except FSTimeoutError as error:
                raise OSError(f"the store did not answer within {limit_s:g} s") from error
            except OSError as error:
                if attempt == _CONFLICT_ATTEMPTS or _http_status(error) != _CONFLICT:
                    raise
            else:
                return

    def _size(self, location: str) -> int:
        info = self._files.info(location)
        if info["type"] != "file":
            raise IsADirectoryError(location)
        return int(info["size"])

    def _try_out(self) -> None:
        """Create one file twice: the second time must be refused."""
        trial = temporary_name("trial")
        try:
            self._put(trial, memoryview(b""), overwrite=False)
            try:
                self._put(trial, memoryview(b""), overwrite=False)
            except AlreadyExistsError:
                return
            finally:
                self.delete(trial)
        except StorageError as error:
            raise _refusal(
                self.url,
                "cannot be written to",
                "check the name, this process's credentials and its permission to write there",
            ) from error
        raise _refusal(
            self.url,
            "allowed a second exclusive create to replace the first one, so it cannot fence old "
            "writers",
            "use a store that honours conditional writes (AWS S3, Google Cloud Storage, Azure, "
            "a current MinIO, Ceph or R2), or a newer version of the driver package",
        )


def _bulk_delete(files: Any, places: Sequence[str]) -> None:
    """Delete files in few requests; S3 ignores those that are not there.

    S3 answers with an error for each object that stays. Its driver drops them
    (``S3FileSystem._bulk_delete``), so S3's request is made here. The other drivers raise.

    Raises:
        FileNotFoundError: a driver stopped at one that is not there.
        Exception: of the driver; any of the files may be left.
    """
    if not hasattr(files, "call_s3"):
        files.rm(list(places))
        return
    failed: list[dict[str, str]] = []
    for start in range(0, len(places), _MOST_OBJECTS):
        paths = [files.split_path(place) for place in places[start : start + _MOST_OBJECTS]]
        wanted = {"Objects": [{"Key": key} for _, key, _ in paths], "Quiet": True}
        answer = files.call_s3("delete_objects", Bucket=paths[0][0], Delete=wanted)
        failed += answer.get("Errors", ())
    if failed:
        first = failed[0]
        denied = first.get("Code") == "AccessDenied"
        raise OSError(
            errno.EACCES if denied else errno.EIO,
            f"{len(failed)} of {len(places)} objects stay, the first of them {first.get('Key')}: "
            f"{first.get('Code')}, {first.get('Message')}",
        )


def _check_url(url: str) -> str:
    """Return ``url`` in its normal form, or raise ConfigError."""
    scheme, _, rest = url.partition("://")
    protocol = _protocol(scheme, url)
    location = rest.strip("/") if scheme == "memory" else rest.rstrip("/")
    authority = location.partition("/")[0]
    user, at, account = authority.rpartition("@")
    if at and (protocol.package != "adlfs" or ":" in user):
        raise ConfigError(
            f"a {scheme}:// storage URL holds a user name or password (not shown)",
            operation="open storage",
            hint="pass credentials through the environment; see the driver's manual",
        )
    if protocol.package == "adlfs" and not (user and "." in account):
        raise _refusal(
            url,
            "does not name the container and the account",
            f"write {scheme}://container@account.dfs.core.windows.net/path",
        )
    try:
        check_path(location)
    except ConfigError as error:
        raise _refusal(
            url, "has no bucket or an unclean path", f"write {scheme}://bucket/path"
        ) from error
    return check_root(f"{scheme}://{location}")


def _protocol(scheme: str, url: str) -> Protocol:
    """Return the protocol of a scheme, or raise ConfigError if it has no exclusive create."""
    if (found := EXCLUSIVE.get(scheme)) is not None:
        return found
    why = REFUSED.get(scheme)
    if why is None and scheme in fsspec.available_protocols():
        why = "it is not known to create files exclusively"
    known = ", ".join(f"{name}://" for name in sorted([*EXCLUSIVE, *HDFS_SCHEMES]))
    raise _refusal(
        url,
        f"cannot be used: {why}" if why else "has an unknown scheme",
        f"use a path on a disk or shared file system, or one of {known}",
    )


def _connect(url: str, protocol: Protocol) -> tuple[Any, str]:
    """Return the driver for ``url``, and the root in the driver's form."""
    try:
        fsspec.get_filesystem_class(url.partition("://")[0])
    except (ImportError, ValueError) as error:  # ValueError: known to its own package only
        raise _refusal(
            url, "needs a package that is not installed", f"pip install {protocol.package}"
        ) from error
    try:
        files, root = fsspec.url_to_fs(url, use_listings_cache=False, **protocol.options)
    except Exception as error:  # drivers look for credentials here, each in its own way
        raise _refusal(
            url, "cannot be reached by its driver", "see the cause; check the credentials"
        ) from error
    return files, root.rstrip("/")


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the botocore error behind ``error``, which s3fs rewords."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status if isinstance(status, int) else None
        cause = cause.__cause__
    return None


def _says_taken(error: OSError) -> bool:
    return isinstance(error, FileExistsError) or _http_status(error) == _PRECONDITION_FAILED


def _describe(found: Sequence[dict[str, Any]], folder: str) -> Iterator[Entry]:
    for item in found:
        path = item["name"].rstrip("/")
        name = path.rpartition("/")[2]
        if path == folder or is_temporary(name):
            continue  # ``folder`` itself is listed when it is a file, or has a marker object
        if item["type"] == "directory":
            yield Entry(name, is_folder=True)
        else:
            yield Entry(name, size=int(item["size"]))


def _modified_ms(info: dict[str, Any]) -> int | None:
    """Return when a file was written, as far as its driver tells."""
    for each in map(info.get, _MODIFIED_KEYS):
        if isinstance(each, datetime):
            return int(each.timestamp() * 1000)
        if isinstance(each, float):  # seconds: of SMB, and of listings in memory
            return int(each * 1000)
    return None


def _refusal(url: str, what: str, hint: str) -> ConfigError:
    return ConfigError(f"storage URL {url!r} {what}", operation="open storage", path=url, hint=hint)

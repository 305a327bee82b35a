"""What FsspecStorage does beyond the common contract, over drivers that misbehave."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.errors import AlreadyExistsError, ConfigError, StorageError, StorageFullError
from penstock.storage import Entry, open_storage


def fresh_url() -> str:
    return f"memory://{uuid.uuid4().hex}/root"


class S3Error(Exception):
    """Has the form of botocore's ClientError, which s3fs rewords into an OSError."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


def reworded(status: int) -> OSError:
    error = OSError(5, "Input/output error")
    error.__cause__ = S3Error(status)
    return error


class Uploads:
    """Replaces the driver's upload by one that first raises the given errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.remaining = list(errors)
        upload = MemoryFileSystem.pipe_file

        def pipe_file(files: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
            if self.remaining:
                raise self.remaining.pop(0)
            upload(files, path, value, mode=mode)

        monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)


def test_uris_are_those_of_spark() -> None:
    url = fresh_url()

    assert open_storage(url).uri("a/b") == f"{url}/a/b"


def test_urls_are_normal() -> None:
    name = uuid.uuid4().hex

    assert open_storage(f"memory:///{name}/").url == f"memory://{name}"


def test_the_trial_leaves_nothing() -> None:
    assert list(open_storage(fresh_url()).list()) == []


def test_a_driver_that_ignores_the_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = MemoryFileSystem.pipe_file
    monkeypatch.setattr(
        MemoryFileSystem,
        "pipe_file",
        lambda files, path, value, mode: upload(files, path, value),
    )
    url = fresh_url()

    with pytest.raises(ConfigError, match="second exclusive create"):
        open_storage(url)

    monkeypatch.undo()
    assert list(open_storage(url).list()) == []


def test_a_store_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Uploads(monkeypatch, PermissionError(13, "Access Denied"))

    with pytest.raises(ConfigError, match="cannot be written") as caught:
        open_storage(fresh_url())

    assert isinstance(caught.value.cause, StorageError)


def test_a_conflict_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(fresh_url())
    uploads = Uploads(monkeypatch, reworded(409), reworded(409), reworded(409))

    storage.create("file", b"x")

    assert uploads.remaining == []
    assert storage.list() == [Entry("file", size=1)]


def test_an_endless_conflict_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(fresh_url())
    Uploads(monkeypatch, *(reworded(409) for _ in range(100)))

    with pytest.raises(StorageError) as caught:
        storage.create("file", b"x")

    assert not isinstance(caught.value, AlreadyExistsError)


def test_a_failed_precondition_means_the_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(fresh_url())
    Uploads(monkeypatch, reworded(412))

    with pytest.raises(AlreadyExistsError):
        storage.create("file", b"x")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), StorageFullError),
        (ConnectionError("reset"), StorageError),
        (RuntimeError("of the driver's library"), StorageError),
        (reworded(500), StorageError),
    ],
)
def test_errors_of_drivers_become_ours(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[StorageError]
) -> None:
    storage = open_storage(fresh_url())
    Uploads(monkeypatch, error)

    with pytest.raises(StorageError) as caught:
        storage.create("file", b"x")

    assert type(caught.value) is kind
    assert caught.value.cause is error
    assert caught.value.path == "file"

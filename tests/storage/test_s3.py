"""S3 through its real driver. With these packages the conformance suite runs over S3, too."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.errors import ConfigError, StorageError
from penstock.storage import Storage, attach_storage, open_storage

pytest.importorskip("s3fs", reason="s3fs is not installed: S3 is not tried")
pytest.importorskip("moto", reason="moto[server] is not installed: S3 is not tried")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_spark_reads_it_as_s3a(s3_bucket: str, scheme: str) -> None:
    root = uuid.uuid4().hex
    storage = open_storage(f"{s3_bucket.replace('s3', scheme, 1)}/{root}")

    assert storage.uri("a/b") == f"s3a://bucket/{root}/a/b"


def test_a_missing_bucket_is_refused(s3_bucket: str) -> None:
    """And the message that a user sees first says why, though the store's error lies deep below."""
    with pytest.raises(
        ConfigError, match=r"cannot be written.*The specified bucket does not exist"
    ):
        open_storage(f"{s3_bucket}-that-is-not-there/x")


@contextmanager
def requests_of(storage: Storage) -> Iterator[list[str]]:
    """Collect the requests that a storage sends meanwhile, by S3's names for them."""
    sent: list[str] = []

    def note(event_name: str, **details: Any) -> None:
        sent.append(event_name.rpartition(".")[2])

    events = storage._files.s3.meta.events  # type: ignore[attr-defined]
    events.register("before-send.s3", note)
    yield sent
    events.unregister("before-send.s3", note)


@pytest.mark.parametrize(
    ("operation", "request_name"),
    [
        (lambda storage: storage.create("folder/new", b"x"), "PutObject"),
        (lambda storage: storage.create("folder/a", b"x", overwrite=True), "PutObject"),
        (lambda storage: storage.read("folder/a"), "GetObject"),
        (lambda storage: storage.read("folder/a", 1, 3), "GetObject"),
        (lambda storage: storage.list("folder"), "ListObjectsV2"),
        (lambda storage: storage.delete("folder/a"), "DeleteObject"),
        (lambda storage: storage.delete_all(["folder/a", "folder/b", "gone"]), "DeleteObjects"),
    ],
)
def test_an_operation_is_one_request(
    s3_bucket: str, operation: Callable[[Storage], None], request_name: str
) -> None:
    storage = open_storage(f"{s3_bucket}/{uuid.uuid4().hex}")
    for name in "ab":
        storage.create(f"folder/{name}", b"abcd")
    with requests_of(storage) as sent:
        operation(storage)
    assert sent == [request_name]


def test_a_create_fails_if_the_store_never_answers(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = pytest.importorskip("s3fs").S3FileSystem
    monkeypatch.setattr("penstock.storage.remote._UPLOAD_S", 0.5)
    drivers.clear_instance_cache()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        storage = attach_storage(f"{s3_bucket}/mute")
        with pytest.raises(StorageError, match="the store did not answer within"):
            storage.create("a", b"x")
    drivers.clear_instance_cache()


def test_a_bulk_delete_says_what_stays_and_can_be_repeated(s3_bucket: str) -> None:
    """The driver alone would drop S3's answer for single objects."""
    boto3 = pytest.importorskip("boto3")
    root = uuid.uuid4().hex
    storage = open_storage(f"{s3_bucket}/{root}")
    paths = [f"folder/{number}" for number in range(4)]
    for path in paths:
        storage.create(path, b"x")
    kept = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": [f"arn:aws:s3:::bucket/{root}/{path}" for path in paths[1:3]],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [kept]})
    client = boto3.client("s3")
    client.put_bucket_policy(Bucket="bucket", Policy=policy)
    try:
        with pytest.raises(StorageError, match=rf"2 of 4 objects stay.*{root}/folder/1.*AccessDen"):
            storage.delete_all(paths)
    finally:
        client.delete_bucket_policy(Bucket="bucket")
    assert [entry.name for entry in storage.list("folder")] == ["1", "2"]
    storage.delete_all(paths)
    assert storage.list("folder") == []

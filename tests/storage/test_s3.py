"""S3 through its real driver. With these packages the conformance suite runs over S3, too."""

from __future__ import annotations

import importlib
import uuid

import pytest

from penstock.errors import ConfigError
from penstock.storage import open_storage

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


def test_a_read_is_one_request(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = importlib.import_module("aiobotocore.client").AioBaseClient
    call, asked = client._make_api_call, []

    async def counted(self: object, operation: str, arguments: object) -> object:
        asked.append(operation)
        return await call(self, operation, arguments)

    storage = open_storage(f"{s3_bucket}/{uuid.uuid4().hex}")
    storage.create("file", b"content")
    storage.create("empty", b"")
    monkeypatch.setattr(client, "_make_api_call", counted)

    assert (storage.read("file"), storage.read("empty")) == (b"content", b"")
    assert asked == ["GetObject", "GetObject"]

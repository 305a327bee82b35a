"""One storage of each kind, for the tests that hold for all of them."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage import Storage, open_storage
from penstock.testing import FaultyStorage

pytest.register_assert_rewrite("penstock.testing.file_manager_suite")

HAS_S3 = all(importlib.util.find_spec(name) for name in ("s3fs", "moto"))


@pytest.fixture(params=["local", "unsynced", "memory", "faulty", *(["s3"] if HAS_S3 else [])])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A fresh storage of each kind."""
    if request.param == "local":
        return open_storage(tmp_path / "root")
    if request.param == "unsynced":
        return open_storage(tmp_path / "root").without_sync()
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}/root")
    if request.param == "faulty":
        return FaultyStorage(open_storage(tmp_path / "root"))
    return open_storage(f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket on an S3 server in this process, reached through the real driver."""
    boto3 = importlib.import_module("boto3")
    moto = importlib.import_module("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "s3://bucket"
    server.stop()

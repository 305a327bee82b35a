"""One storage of each kind, for the tests that hold for all of them."""

from __future__ import annotations

import importlib.util
import uuid
from pathlib import Path

import pytest

from penstock.storage import Storage, open_storage
from tests.storage.faulty_storage import FaultyStorage

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

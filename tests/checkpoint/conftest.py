"""Storages to keep logs in, and the entries that most tests write."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint import OffsetSeq
from penstock.storage import Storage, open_storage


def offsets_of(batch_id: int, sources: int = 1) -> OffsetSeq:
    """Return offsets that differ between batches."""
    return OffsetSeq(
        batch_timestamp_ms=1_600_000_000_000 + batch_id,
        conf={"spark.sql.shuffle.partitions": "2"},
        sources=tuple(f'{{"clicks":{{"w{i}":{10 * batch_id}}}}}' for i in range(sources)),
    )


def as_given(entry: OffsetSeq | None) -> OffsetSeq | None:
    """Return an entry without what a driver adds of itself."""
    if entry is None:
        return None
    own = ("spark.penstock.run", "spark.penstock.keptFrom")
    return replace(entry, conf={k: v for k, v in entry.conf.items() if k not in own})


@pytest.fixture
def local_storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "location")


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A fresh storage with checksums beside files, and one without."""
    if request.param == "local":
        return open_storage(tmp_path / "location")
    return open_storage(f"memory://{uuid.uuid4().hex}/location")

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.hdfs.cluster import Cluster


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The one cluster of a run: its tests have one xdist_group. Each has a folder of its own."""
    with Cluster(tmp_path_factory.mktemp("hdfs")).running() as cluster:
        yield cluster


@pytest.fixture
def folder(hdfs: Cluster) -> str:
    """The URL of a folder for this test."""
    return f"{hdfs.url}/tests/{uuid.uuid4().hex}"

"""What a location on HDFS can be refused for: one clear error, soon, and nothing is written."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from hdfs_native import Client, WriteOptions

from penstock.errors import ConfigError, StorageError, StorageFullError
from penstock.storage import attach_storage, open_storage
from penstock.storage import hdfs as client_module
from tests.hdfs.cluster import Cluster
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hdfs")]


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_S", 0.5)
    monkeypatch.setattr(client_module, "_PATIENCE_S", 0.5)


@pytest.fixture
def path(hdfs: Cluster, folder: str) -> str:
    """A folder for this test that exists, without the NameNode's address."""
    path = folder.removeprefix(hdfs.url)
    Client(hdfs.url).mkdirs(path, create_parent=True)
    return path


def left(hdfs: Cluster, path: str) -> list[str]:
    return [each.path for each in Client(hdfs.url).list_status(path, recursive=True)]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hdfs://127.0.0.1:1/x", "does not answer: Connection refused.*check the address"),
        (
            "hdfs://no-such-name-service/x",
            "does not answer: failed to lookup address.*HADOOP_CONF_DIR",
        ),
        (
            "hdfs://nosuch.invalid:8020/x",
            "does not answer: failed to lookup address.*check the address",
        ),
        ("hdfs://host:8020", "names no folder"),
        ("hdfs://host:8020/", "names no folder"),
        ("hdfs://ann@host:8020/x", "names no folder"),
        ("hdfs://host:8020/a:b", "has a colon in its path"),
        ("hdfs://host:8020/a//b", "not a clean relative path"),
        ("hdfs://host:8020/a*", "wildcards to Spark"),
        ("viewfs://nosuch/x", "No viewfs fallback mount found"),
    ],
)
def test_an_address_that_is_not_one(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        open_storage(url)
    assert raised.value.hint


def test_without_a_default_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(ConfigError, match=r"No fs\.defaultFS setting found"):
        open_storage("hdfs:///x")


def test_a_name_node_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections, and no more: a tool that reads is told as soon."""
    monkeypatch.setattr(client_module, "_CALL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"hdfs://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(ConfigError, match=r"does not answer within 0\.5 s"):
            open_storage(url)
        with pytest.raises(StorageError, match=r"does not answer within 0\.5 s"):
            attach_storage(url).list()


def test_safe_mode(hdfs: Cluster, path: str) -> None:
    storage = open_storage(f"{hdfs.url}{path}")
    storage.create("a", b"1")
    hdfs.do("enter-safe-mode")
    try:
        with pytest.raises(ConfigError, match=r"safe mode.*dfsadmin -safemode get"):
            open_storage(f"{hdfs.url}{path}")
        with pytest.raises(StorageFullError, match="read-only"):
            storage.create("b", b"2")
        assert storage.read("a") == b"1"
    finally:
        hdfs.do("leave-safe-mode")
    storage.create("b", b"2")
    assert left(hdfs, path) == [f"{path}/a", f"{path}/b"]


@pytest.fixture
def stranger(hdfs: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the cluster to another user: clients are kept by the words of the address."""
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    service = f"hdfs://localhost:{hdfs.addresses[0].partition(':')[2]}"
    yield service
    client_module._clients.pop((os.getpid(), service), None)


def test_no_permission(hdfs: Cluster, path: str, stranger: str) -> None:
    with pytest.raises(ConfigError, match=r"Permission denied: user=stranger.*give this user"):
        open_storage(f"{stranger}{path}/x")
    assert left(hdfs, path) == []


@pytest.mark.parametrize("limit", ["limit-space", "limit-names"])
def test_a_quota(hdfs: Cluster, path: str, limit: str) -> None:
    hdfs.do(limit, path)
    with pytest.raises(ConfigError, match=r"QuotaExceeded.*raise the quota"):
        open_storage(f"{hdfs.url}{path}")
    assert left(hdfs, path) == []
    with pytest.raises(StorageFullError, match="quota is reached"):
        attach_storage(f"{hdfs.url}{path}").create("a", b"1" * 1000)
    assert left(hdfs, path) == []


def test_a_file_where_a_folder_should_be(hdfs: Cluster, path: str) -> None:
    with Client(hdfs.url).create(f"{path}/file", WriteOptions()) as file:
        file.write(b"x")
    for url in (f"{hdfs.url}{path}/file", f"{hdfs.url}{path}/file/below"):
        with pytest.raises(ConfigError, match="a file stands where a folder is needed"):
            open_storage(url)
    assert left(hdfs, path) == [f"{path}/file"]


def test_a_name_with_a_colon(hdfs: Cluster, path: str) -> None:
    storage = open_storage(f"{hdfs.url}{path}")
    with pytest.raises(StorageError, match="a:b"):
        storage.create("a:b", b"x")
    assert left(hdfs, path) == []


def test_no_data_node(hdfs: Cluster, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_S", "_PATIENCE_S"):  # the NameNode counts on it for some seconds
        monkeypatch.setattr(client_module, name, WAIT_S)
    storage = open_storage(f"{hdfs.url}{path}")
    storage.create("a", b"1")
    hdfs.do("stop-datanode")
    try:
        with pytest.raises(ConfigError, match="no DataNode has room"):
            open_storage(f"{hdfs.url}{path}")
        with pytest.raises(StorageFullError, match="no DataNode has room"):
            storage.create("b", b"2")
        assert left(hdfs, path) == [f"{path}/a"]
    finally:
        hdfs.do("start-datanode")
    storage.create("b", b"2")
    assert storage.read("b") == b"2"

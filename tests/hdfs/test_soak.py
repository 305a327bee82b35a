"""HDFS in trouble for minutes: fail-over, a NameNode away, full disks, Kerberos, twenty kills."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import AlreadyExistsError, ConfigError, StorageFullError
from penstock.storage import Storage, open_storage
from penstock.storage import hdfs as client_module
from tests.background import background
from tests.hdfs.cluster import NAME_SERVICE, Cluster, write_conf
from tests.hdfs.test_program import site_at
from tests.hdfs.test_storage import check_published, check_restart, forget_clients, kill_publishers
from tests.mounts import small_disk
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.spark]

_USER = "alice"
_COPY = """
import pickle, sys
storage = pickle.load(sys.stdin.buffer)
storage.create("of-another", b"2")
print(*storage.names())
"""


def test_twenty_kills_of_publishers(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged = kill_publishers(folder, kills=20)
    check_published(open_storage(folder), acknowledged, monkeypatch)


def test_twenty_kills_of_a_program(folder: str, tmp_path: Path) -> None:
    site, moments = site_at(f"{folder}/program", tmp_path), random.Random(20)
    with site.writer.running(lines_a_burst=20, pause_s=0.05):
        for kill in range(20):
            with site.driver() as driver:
                if kill % 2:
                    driver.wait_line("committed")
                    time.sleep(moments.uniform(0, 1.5))
                else:
                    time.sleep(moments.uniform(1.0, 8.0))
                driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def test_a_name_node_away_for_two_minutes(hdfs: Cluster, folder: str) -> None:
    check_restart(hdfs, folder, away_s=120)


def test_a_program_whose_name_node_is_away_for_two_minutes(
    hdfs: Cluster, folder: str, tmp_path: Path
) -> None:
    site = site_at(f"{folder}/program", tmp_path)
    with site.writer.running(lines_a_burst=20, pause_s=0.05), site.driver() as driver:
        driver.wait_batches(3)
        hdfs.do("stop-namenode", 0)
        time.sleep(120)
        hdfs.do("start-namenode", 0)
        driver.wait_batches(3)
        driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, verdict


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("pair"), "ha").running() as cluster:
        yield cluster


@pytest.fixture
def fail_over(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(pair.conf_dir))
    yield pair
    forget_clients(f"hdfs://{NAME_SERVICE}", "hdfs://")


def switch(pair: Cluster, active: int) -> int:
    """End the active NameNode, have the other take over, and start the first as its standby."""
    pair.do("stop-namenode", active)
    pair.do("make-active", 1 - active)
    pair.do("start-namenode", active)
    return 1 - active


def test_each_name_is_given_once_through_fail_overs(fail_over: Cluster) -> None:
    storage = open_storage(f"hdfs://{NAME_SERVICE}/files")
    created: list[int] = []

    def create(end: Event) -> None:
        for number in count():
            if end.is_set():
                return
            try:
                storage.create(f"{number}", b"%d" % number)
            except AlreadyExistsError:
                assert storage.read(f"{number}") == b"%d" % number
            created.append(number)

    active = 0
    with background(create):
        for _ in range(4):
            reached = len(created)
            assert eventually(lambda reached=reached: len(created) > reached + 5)
            active = switch(fail_over, active)
    if active:
        switch(fail_over, active)
    assert sorted(storage.names(), key=int) == [str(number) for number in created]


def test_a_program_goes_on_through_a_fail_over(fail_over: Cluster, tmp_path: Path) -> None:
    site = site_at("hdfs:///program", tmp_path)
    with site.writer.running(lines_a_burst=20, pause_s=0.05), site.driver() as driver:
        driver.wait_batches(3)
        switch(fail_over, 0)
        driver.wait_batches(3)
        driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def test_a_full_data_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_S", 0.5)
    options = [
        "dfs.namenode.resource.du.reserved=0",
        "dfs.datanode.du.reserved=4000000",
        "dfs.blocksize=1048576",
    ]
    with (
        small_disk(tmp_path / "disk", size="48m") as disk,
        Cluster(disk, *options).running() as it,
    ):
        storage = open_storage(f"{it.url}/x")
        names = fill(storage)
        assert storage.names() == sorted(names)
        assert len(names) > 5
        assert all(len(storage.read(name)) == 1_000_000 for name in names)
        with pytest.raises(ConfigError, match="no DataNode has room"):
            open_storage(f"{it.url}/y")
        for name in names:
            storage.delete(name)
        assert eventually(lambda: can_create(storage))


def fill(storage: Storage) -> list[str]:
    """Create files until there is no room; return their names."""
    names: list[str] = []
    try:
        for number in count():
            storage.create(str(number), bytes(1_000_000))
            names.append(str(number))
    except StorageFullError:
        pass
    return names


def can_create(storage: Storage) -> bool:
    try:
        storage.create("after", b"1", overwrite=True)
    except StorageFullError:
        return False
    return True


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secure")
    with Cluster(folder, f"kerberos={_USER}", "dfs.permissions.enabled=false").running() as cluster:
        yield cluster


@pytest.fixture
def nobody(secure: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process without any credentials."""
    (conf,) = secure.data.glob("*/krb5.conf")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(secure.conf_dir))
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    for name in ("HADOOP_TOKEN_FILE_LOCATION", "KRB5_CLIENT_KTNAME"):
        monkeypatch.delenv(name, raising=False)
    yield
    forget_clients(secure.url, secure.url.replace("localhost", "127.0.0.1"))


@pytest.fixture
def user(secure: Cluster, nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"{secure.data}/user.keytab")


def use(storage: Storage) -> None:
    storage.create("a/b", b"0123456789")
    with pytest.raises(AlreadyExistsError):
        storage.create("a/b", b"other")
    assert storage.read("a/b", 2, 5) == b"234"
    assert [entry.name for entry in storage.list("a")] == ["b"]
    storage.private().create("p", b"pickle")
    assert storage.private().read("p") == b"pickle"


def test_kerberos_with_a_keytab(secure: Cluster, user: None) -> None:
    storage = open_storage(f"{secure.url}/keytab")
    use(storage)
    copy = subprocess.run(
        [sys.executable, "-c", _COPY],
        input=pickle.dumps(storage.open_folder("copy")),
        env=dict(os.environ),
        capture_output=True,
        check=False,
    )
    assert copy.stdout.split() == [b"of-another"], copy.stderr.decode()


def test_kerberos_with_a_delegation_token(
    secure: Cluster, nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure.do("write-token", tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    url = secure.url.replace("localhost", "127.0.0.1")  # the words of the token
    use(open_storage(f"{url}/token"))


def test_kerberos_with_a_token_for_another_host(
    secure: Cluster, nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure.do("write-token", tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    monkeypatch.setattr(client_module, "_FIRST_S", 0.5)
    with pytest.raises(ConfigError, match="a token is for the host and port that it names"):
        open_storage(f"{secure.url}/x")


def test_kerberos_without_credentials(
    secure: Cluster, nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_S", 0.5)
    with pytest.raises(ConfigError, match="run kinit or set KRB5_CLIENT_KTNAME"):
        open_storage(f"{secure.url}/x")


def test_a_cluster_of_which_the_configuration_says_nothing(
    secure: Cluster, user: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_S", 0.5)
    write_conf(tmp_path, {"hadoop.security.authentication": "simple"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"does not answer.*HADOOP_CONF_DIR"):
        open_storage(f"{secure.url}/x")

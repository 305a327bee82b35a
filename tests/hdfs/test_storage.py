"""HDFS beyond the contract: kills, forks, addresses, private files, and a NameNode that is away."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from hdfs_native import Client

from penstock.errors import AlreadyExistsError, ConfigError
from penstock.storage import Storage, attach_storage, open_storage
from penstock.storage import hdfs as client_module
from penstock.storage.trust import check_trusted
from tests.background import background
from tests.hdfs.cluster import Cluster, name_service, write_conf
from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hdfs")]

_PUBLISH = """
import itertools, sys
from penstock.storage import open_storage
storage = open_storage(sys.argv[1])
for number in itertools.count():
    storage.create(f"files/{sys.argv[2]}-{number:06}", b"%d" % number * 20_000)
    print(number, flush=True)
"""
_FORK = """
import os, sys
from penstock.storage import open_storage
storage = open_storage(sys.argv[1])
storage.create("a", b"1")
if (child := os.fork()) == 0:
    storage.create("b", storage.read("a") + b"2")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
storage.create("c", b"3")
"""


def test_what_a_killed_publisher_acknowledged_is_whole(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged = kill_publishers(folder, kills=1)
    check_published(open_storage(folder), acknowledged, monkeypatch)


def kill_publishers(folder: str, kills: int) -> list[tuple[str, int]]:
    """Kill publishers in the middle of it; return the names and numbers that they acknowledged."""
    acknowledged: list[tuple[str, int]] = []
    for kill in range(kills):
        command = [sys.executable, "-c", _PUBLISH, folder, str(kill)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
            assert publisher.stdout is not None
            for line in publisher.stdout:
                acknowledged.append((f"{kill}-{int(line):06}", int(line)))
                if int(line) == 3:
                    time.sleep(0.005 * (kill % 7))
                    publisher.send_signal(signal.SIGKILL)
        assert publisher.returncode == -signal.SIGKILL
    return acknowledged


def check_published(
    storage: Storage, acknowledged: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = storage.names("files")
    assert acknowledged
    assert {name for name, _ in acknowledged} <= set(names)
    for name in names:
        number = int(name.partition("-")[2])
        assert storage.read(f"files/{name}") == b"%d" % number * 20_000
    storage.sweep("files")  # passes by what may be in progress
    before = len(storage.walk("files"))
    monkeypatch.setattr(client_module, "_UNFINISHED_S", -60.0)
    storage.sweep("files")
    assert len(storage.walk("files")) == len(names) <= before


def test_a_forked_child_has_its_own_client(folder: str) -> None:
    subprocess.run([sys.executable, "-c", _FORK, folder], check=True, timeout=WAIT_S)
    assert open_storage(folder).read("b") == b"12"


@pytest.fixture
def conf(hdfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of Hadoop's configuration, which new clients read."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    yield tmp_path
    forget_clients("hdfs://lake", "hdfs://", "viewfs://all")


def forget_clients(*services: str) -> None:
    for service in services:
        client_module._clients.pop((os.getpid(), service), None)


def test_the_default_and_name_services_come_from_hadoop_s_configuration(
    hdfs: Cluster, folder: str, conf: Path
) -> None:
    """Of two NameNodes one is not there."""
    path = folder.removeprefix(hdfs.url)
    nodes = name_service("lake", "127.0.0.1:1", hdfs.addresses[0])
    write_conf(conf, {"fs.defaultFS": hdfs.url, **nodes})
    open_storage(f"hdfs://lake{path}").create("a", b"1")
    default = open_storage(f"hdfs://{path}")
    assert default.read("a") == b"1"
    assert default.uri("a") == f"hdfs://{path}/a"  # as Spark reads it
    assert attach_storage(folder).names() == ["a"]


def test_viewfs(hdfs: Cluster, folder: str, conf: Path) -> None:
    path = folder.removeprefix(hdfs.url)
    mounts = {"linkFallback": f"{hdfs.url}/", "link./mounted": folder}
    write_conf(conf, {f"fs.viewfs.mounttable.all.{key}": to for key, to in mounts.items()})
    storage = open_storage("viewfs://all/mounted/x")
    storage.create("deep/a", b"1")
    with pytest.raises(AlreadyExistsError):
        storage.create("deep/a", b"2")
    assert [each.name for each in storage.list()] == ["deep"]
    assert storage.find() == ["deep/a"]
    assert open_storage(f"viewfs://all{path}/x").read("deep/a") == b"1"
    assert attach_storage(f"{folder}/x").read("deep/a") == b"1"


def test_without_a_port_it_is_hadoop_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = Client

    def note(service: str, conf: dict[str, str]) -> Client:
        asked.append(service)
        return real(service, conf)

    monkeypatch.setattr(client_module, "Client", note)
    monkeypatch.setattr(client_module, "_FIRST_S", 0.1)
    with pytest.raises(ConfigError, match="Connection refused"):
        open_storage("hdfs://127.0.0.1/x")
    assert asked == ["hdfs://127.0.0.1", "hdfs://127.0.0.1:8020"]


def test_a_pickle_that_another_user_could_have_written_is_not_read(
    hdfs: Cluster, folder: str
) -> None:
    path, superuser = folder.removeprefix(hdfs.url), Client(hdfs.url)
    open_storage(folder)
    superuser.set_permission(path, 0o777)  # a team's folder
    storage = pickle.loads(pickle.dumps(open_storage(folder).private())).open_folder("state")
    storage.create("0/a", b"pickle")
    assert storage.read("0/a") == b"pickle"
    check_trusted(f"{folder}/state/0/a")
    check_trusted(f"{folder}/state/none")
    modes = [superuser.get_file_info(f"{path}/state/{each}").permission for each in ("0", "0/a")]
    assert modes == [0o700, 0o600]
    superuser.set_permission(f"{path}/state/0/a", 0o666)
    with pytest.raises(ConfigError, match=r"written by others \(owner .*, mode 666\).*-chmod go-w"):
        storage.read("0/a", -3)
    superuser.set_permission(f"{path}/state/0/a", 0o600)
    superuser.set_owner(f"{path}/state/0/a", owner="mallory")
    with pytest.raises(ConfigError, match="owner mallory, mode"):
        storage.read("0/a")
    with pytest.raises(ConfigError, match="owner mallory, mode"):
        check_trusted(f"{folder}/state/0/a")
    assert open_storage(folder).read("state/0/a") == b"pickle"  # bytes do no harm


def test_a_name_node_that_restarts_is_waited_for(hdfs: Cluster, folder: str) -> None:
    check_restart(hdfs, folder, away_s=3)


def check_restart(hdfs: Cluster, folder: str, away_s: float) -> None:
    """Write while the NameNode is away: what was created once is there once."""
    storage = open_storage(folder)
    created: list[int] = []

    def create(end: Event) -> None:
        for number in count():
            if end.is_set():
                return
            try:
                storage.create(f"files/{number}", b"%d" % number)
            except AlreadyExistsError:  # its own: the answer was lost
                assert storage.read(f"files/{number}") == b"%d" % number
            created.append(number)

    with background(create):
        assert eventually(lambda: len(created) > 3)
        hdfs.do("stop-namenode", 0)
        time.sleep(away_s)
        hdfs.do("start-namenode", 0)
        reached = len(created)
        assert eventually(lambda: len(created) > reached + 3)
    assert sorted(storage.names("files"), key=int) == [str(number) for number in created]

"""A real HDFS for tests: NameNodes and a DataNode in one JVM, on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark
import pytest

LIBRARIES = next(
    (done.parent for done in sorted(Path(__file__).parents[2].glob(".tools/hdfs/*/complete"))),
    None,
)
NAME_SERVICE = "lake"
_JAVA = ["java", "-Xmx300m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_OPENS = "--add-opens=java.base/java.lang=ALL-UNNAMED"


class Cluster:
    """Runs for the length of a ``with`` block, in a folder.

    A test is skipped where Hadoop's cluster for tests is missing.

    Args:
        folder: the folder of its files.
        options: "ha" for two NameNodes, "kerberos=USER", and Hadoop's settings as key=value.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        if LIBRARIES is None:
            pytest.skip("NOT PROVED: there are no libraries of HDFS (scripts/hdfs.sh)")
        self._folder, self._options = folder, options
        self._process: subprocess.Popen[str]
        self.addresses: list[str] = []
        """Host and port of each NameNode."""
        self.conf_dir = folder / "conf"
        """For HADOOP_CONF_DIR: it is the default there, and two NameNodes are a name service."""

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Start it, and end it with the block."""
        self.conf_dir.mkdir(parents=True)
        classes = f"{LIBRARIES}/*:{Path(pyspark.__file__).parent}/jars/*"
        program = str(Path(__file__).with_name("MiniCluster.java"))
        with (
            (self._folder / "log.txt").open("w") as log,
            subprocess.Popen(
                [*_JAVA, _OPENS, "-cp", classes, program, str(self.data), *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            ) as self._process,
        ):
            try:
                host = "127.0.0.1" if self.user is None else "localhost"
                self.addresses = [f"{host}:{port}" for port in self._answer().split()]
                write_conf(self.conf_dir, self._conf())
                yield self
            finally:
                self._process.kill()

    @property
    def url(self) -> str:
        """The URL of its root."""
        return f"hdfs://{self.addresses[0] if len(self.addresses) == 1 else NAME_SERVICE}"

    @property
    def data(self) -> Path:
        """The folder of its files; with Kerberos, of user.keytab and a folder with krb5.conf."""
        return self._folder / "data"

    @property
    def user(self) -> str | None:
        """The principal of user.keytab."""
        named = [each for each in self._options if each.startswith("kerberos=")]
        return named[0].partition("=")[2] if named else None

    def do(self, *command: object) -> None:
        """Execute a command of MiniCluster.java."""
        assert self._process.stdin is not None
        print(*command, file=self._process.stdin, flush=True)
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("mini: "):
                return line.removeprefix("mini: ").strip()
        raise AssertionError((self._folder / "log.txt").read_text()[-3000:])

    def _conf(self) -> dict[str, str]:
        found = {"fs.defaultFS": self.url}
        if self.user is not None:
            found["hadoop.security.authentication"] = "kerberos"
        if len(self.addresses) > 1:
            found |= name_service(NAME_SERVICE, *self.addresses)
        return found


def name_service(name: str, *addresses: str) -> dict[str, str]:
    """Return the settings of a name service with NameNodes at those addresses."""
    ids = [f"nn{number}" for number in range(len(addresses))]
    found = {"dfs.nameservices": name, f"dfs.ha.namenodes.{name}": ",".join(ids)}
    for each, address in zip(ids, addresses, strict=True):
        found[f"dfs.namenode.rpc-address.{name}.{each}"] = address
    ask = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    return {**found, f"dfs.client.failover.proxy.provider.{name}": ask}


def write_conf(folder: Path, settings: Mapping[str, str]) -> None:
    """Write core-site.xml."""
    lines = [
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    text = "<configuration>\n" + "\n".join(lines) + "\n</configuration>\n"
    (folder / "core-site.xml").write_text(text)

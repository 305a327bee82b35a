"""Two copies of a task at a time, on a cluster: Spark starts the second one on another host."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.faults.driver import Driver
from tests.free_port import free_port
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed
from tests.kafka.speculation_program import SENT
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROGRAM = Path(__file__).with_name("speculation_program.py")
PARTITIONS = 4
RECORDS = SENT + 10
"""Of a partition: the last ones are made when others are sent."""
HOSTS = 3
"""Of the cluster: addresses of the loopback device."""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a standalone cluster of one slot for each host; yield its URL."""
    port = free_port()
    master = ["Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(_daemon(folder / "master", "127.0.0.1", master))
        for number in range(2, HOSTS + 2):
            host = f"127.0.0.{number}"
            options = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
            worker = ["Worker", *options, "--work-dir", str(folder / host), url]
            running.enter_context(_daemon(folder / host, host, worker))
        log = folder / "master" / "log"
        assert eventually(lambda: log.read_text().count("Registering worker") == HOSTS), (
            log.read_text()
        )
        yield url


@contextmanager
def _daemon(folder: Path, host: str, command: list[str]) -> Iterator[None]:
    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    program, *arguments = command
    kind = f"org.apache.spark.deploy.{program.lower()}.{program}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", kind, *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host},
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def test_two_copies_of_a_task_write_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    with broker.running(), cluster(tmp_path / "spark") as url:
        for topic in ("in", "out"):
            broker.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            values = [b"%d-%d" % (partition, n) for n in range(RECORDS)]
            broker.produce("in", values, partition=partition)
        copies = tmp_path / "copies"
        copies.mkdir()
        args = [url, broker.address, str(copies), str(tmp_path / "checkpoint")]
        with Driver(PROGRAM, args, tmp_path / "stderr.txt") as driver:
            driver.wait_records(RECORDS * PARTITIONS)
        assert {each.name for each in copies.iterdir()} == {"0", "1"}
        logs = [each.read_text() for each in (tmp_path / "spark").glob("*/app-*/*/stderr")]
        assert len(logs) >= 2
        assert not [log for log in logs if "Exception in task" in log], "a copy did not wait"
        expected = Counter(f"{p}-{n}" for p in range(PARTITIONS) for n in range(RECORDS))
        assert committed(broker, "out") == expected

"""What docs/structured.md shows runs as it stands, but for paths and port."""

from __future__ import annotations

import os
import re
import shlex
import signal
import textwrap
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from penstock.errors import BatchFailedError
from penstock.receivers import TailReceiver
from penstock.streaming import StreamingContext
from penstock.structured import register, start_receivers
from tests.cli.commands import Commands
from tests.faults.driver import Driver
from tests.free_port import free_port
from tests.waiting import WAIT_S, eventually

DOC = Path(__file__).parents[2] / "docs" / "structured.md"
TEXT = {"content-type": "text/plain"}
# What a machine decides, and not the program.
SUBMIT = (
    "--master local[3] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
    "--conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
)


def block(start: str) -> str:
    """Return the python block of the page that has a line which begins so."""
    found = re.findall(r"^( *)```python\n(.*?)```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    codes = [textwrap.dedent(code) for _, code in found]
    (code,) = (code for code in codes if re.search(f"^{re.escape(start)}", code, re.MULTILINE))
    return code


def newest(location: Path, log: str) -> int:
    return max(int(path.name) for path in (location / log).glob("[0-9]*"))


@pytest.mark.storm
@pytest.mark.spark
def test_an_endpoint_feeds_a_query_through_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT)
    url = f"http://127.0.0.1:{free_port()}/"
    code = block("register(spark)").replace("/data", str(tmp_path))
    program = tmp_path / "clicks.py"
    program.write_text(code.replace("8080", url.split(":")[2].strip("/")))

    def is_taken(lines: str) -> bool:
        try:
            return httpx.post(url, content=lines, headers=TEXT, timeout=WAIT_S).is_success
        except httpx.TransportError:
            return False

    with Driver(program, [], tmp_path / "stderr.txt", own_pythons=True) as driver:
        assert eventually(lambda: is_taken("a\nb\na")), driver.log()
        driver.wait_line("|    a|    2|")
        driver.restart()
        assert eventually(lambda: is_taken("c")), driver.log()
        driver.wait_line("|    c|    1|")
        assert is_taken("a")
        driver.wait_line("|    a|    3|")
        os.kill(driver.process.pid, signal.SIGTERM)
        assert driver.process.wait() == 0, driver.log()
    assert newest(tmp_path / "count", "offsets") == newest(tmp_path / "count", "commits")


class Log:
    """A log that receivers follow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        path.touch()

    def grow(self) -> None:
        more = [f"line {len(self.lines) + each:06}" for each in range(5)]
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        self.lines += more


@pytest.mark.spark
def test_a_dstream_program_becomes_a_query(
    sc: SparkContext, spark: SparkSession, tmp_path: Path
) -> None:
    log = Log(tmp_path / "app.log")
    old, seen = tmp_path / "old", list[str]()
    ssc = StreamingContext(sc, 0.2)
    ssc.checkpoint(str(old))
    lines = ssc.receiverStream(TailReceiver(str(log.path)), name="clicks")
    down = list[bool]()

    def take(rdd: RDD[str]) -> None:
        records = rdd.collect()
        if records and down:
            raise ConnectionError("the sink is down")
        seen.extend(records)

    lines.foreachRDD(take)
    ssc.start()
    log.grow()
    assert eventually(lambda: len(seen) == len(log.lines))
    down.append(True)
    log.grow()
    with pytest.raises(BatchFailedError):  # it was planned, and is not committed
        ssc.awaitTermination()
    ssc.stop(stopSparkContext=False)
    log.grow()

    register(spark)
    names: dict[str, Any] = {
        "spark": spark,
        "start_receivers": start_receivers,
        "old_receivers": [TailReceiver(str(log.path))],
    }
    for start in ("starting_offsets = ", "receivers = start_receivers(spark, old_receivers"):
        exec(block(start).replace("/data/old", str(old)), names)
    writer = names["clicks"].writeStream.foreachBatch(
        lambda df, batch_id: seen.extend(row.value for row in df.collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "count")).start()
    log.grow()
    assert eventually(lambda: len(seen) >= len(log.lines))
    (remove,) = re.findall(r"`penstock journal (consumers rm .*?)`", DOC.read_text())[-1:]
    Commands("journal").succeed(*shlex.split(remove.replace("/data/old", str(old))))
    log.grow()
    assert eventually(lambda: len(seen) >= len(log.lines))
    names["receivers"].stop()
    query.processAllAvailable()
    query.stop()
    assert sorted(seen) == log.lines

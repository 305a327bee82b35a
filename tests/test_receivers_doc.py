"""What docs/receivers.md shows runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.driver import Driver
from tests.free_port import free_port
from tests.receivers.acking_service import AckingService
from tests.waiting import WAIT_S, eventually

DOC = Path(__file__).parents[1] / "docs" / "receivers.md"
TASKS = 600

PROGRAM = """
import sys

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext

{receiver}

folder, port = sys.argv[1], int(sys.argv[2])


def create():
    conf = SparkConf().setMaster("local[2]").setAppName("tasks")
    conf.set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    conf.set("spark.driver.bindAddress", "127.0.0.1")
    ssc = StreamingContext(SparkContext(conf=conf), 0.3)
    {use}

    def write(df, batch_id):
        df.write.mode("overwrite").parquet(f"{{folder}}/sink/batch={{batch_id}}")

    tasks.foreachBatch(write)
    return ssc


ssc = StreamingContext.getOrCreate(folder + "/checkpoint", create)
ssc.sparkContext.setLogLevel("OFF")
ssc.start()
print("started", flush=True)
ssc.awaitTermination()
"""


def block(start: str) -> str:
    """Return the python block of the page that has a line which begins so."""
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    (code,) = (code for code in blocks if re.search(rf"^{start}", code, re.MULTILINE))
    return str(code)


def test_a_reliable_receiver_takes_30_lines() -> None:
    code = block("class TaskReceiver")
    assert len([line for line in code.splitlines() if line.strip()]) <= 30


@pytest.mark.spark
def test_the_receiver_loses_nothing_when_its_program_is_killed(tmp_path: Path) -> None:
    use = block("tasks = ").strip().replace('"tasks.internal", 7000', '"127.0.0.1", port')
    program = tmp_path / "tasks.py"
    program.write_text(PROGRAM.format(receiver=block("class TaskReceiver"), use=use))
    service = AckingService(TASKS)
    with service.running():
        for acked_before_the_kill in (1, TASKS // 2, TASKS):
            with driver(program, tmp_path, service) as running:
                running.wait_line("started")
                wanted = partial(service.has_acked, acked_before_the_kill)
                assert eventually(wanted)
                if acked_before_the_kill == TASKS:
                    assert eventually(lambda: not missing(tmp_path)), missing(tmp_path)
                running.kill()
    assert service.connections >= 3


def driver(program: Path, folder: Path, service: AckingService) -> Driver:
    return Driver(program, [str(folder), str(service.port)], folder / "errors.txt")


@pytest.mark.storm
@pytest.mark.spark
def test_the_tutorial_stores_a_request_once_through_a_kill(tmp_path: Path) -> None:
    """Its commands as a reader types them, but for the paths, the port and the waiting."""
    port = str(free_port())
    program, *commands = (at_home(text, tmp_path, port) for text in tutorial())
    (tmp_path / "clicks.py").write_text(program)
    start, post, kill_and_start, post_again, look = commands
    up = f"until curl -sf http://127.0.0.1:{port}/healthz; do kill -0 $!; sleep 0.2; done"
    found = "grep '\"lag_records\": 0'"
    read = f"until penstock journal consumers ls --json {tmp_path}/checkpoint | {found}"
    steps = [start, up, post, kill_and_start, up, post_again, f"{read}; do :; done", look]
    done = run(["set -m", "trap 'kill -9 $(jobs -p)' EXIT", *steps], tmp_path)
    answer = '{"writer":"r0-00000000","start":0,"end":2}'
    assert done.stdout.count(answer) == 2, done.stdout + done.stderr[-2000:]
    clicks = ['{"page": "/a"}', '{"page": "/b"}']
    assert all(done.stdout.count(click) == 1 for click in clicks), done.stdout


def run(script: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["timeout", f"{2 * WAIT_S:g}", "bash", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def tutorial() -> list[str]:
    """Return the program of the page's first part, and then its commands."""
    part = DOC.read_text().split("\n## ")[1]
    return re.findall(r"```(?:python|bash)\n(.*?)```", part, re.DOTALL)


def at_home(text: str, folder: Path, port: str) -> str:
    return text.replace("/tmp/clicks", str(folder)).replace("8080", port)


def missing(folder: Path) -> list[str]:
    """Return the tasks that are not in the sink; each that is there was sent."""
    files = folder.glob("sink/batch=*/*.parquet")
    seen = {value for file in files for value in pq.ParquetFile(file).read()["value"].to_pylist()}
    expected = [f"task {n}" for n in range(TASKS)]
    assert seen <= set(expected)
    return [task for task in expected if task not in seen]

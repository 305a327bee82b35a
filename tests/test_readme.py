"""The README's programs run as they stand, but for their paths."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from tests.waiting import WAIT_S, eventually

README = Path(__file__).parent.parent / "README.md"


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def program() -> str:
    return programs()[0]


def test_the_program_is_short() -> None:
    assert len([line for line in program().splitlines() if line.strip()]) <= 15


@pytest.mark.spark
def test_the_other_two_make_the_streams_that_they_show(sc: SparkContext, tmp_path: Path) -> None:
    _, http, structured = programs()
    ssc = StreamingContext(sc, 1)
    names: dict[str, Any] = {"ssc": ssc}
    exec(http.replace("/tmp/slow", str(tmp_path / "slow")), names)
    (clicks,) = ssc.graph.inputs
    assert clicks.name == "clicks"
    assert clicks.format.arrow.names == ["page", "ms"]
    spark = SparkSession.builder.getOrCreate()
    sent = spark.createDataFrame([("/a", 12), ("/b", 120)], "page string, ms long")
    names["write_slow"](sent, 7)
    assert spark.read.parquet(str(tmp_path / "slow/batch=7")).collect() == [("/b", 120)]

    format_ = RecordFormat("string")
    JournalStream.create(open_storage(tmp_path / "data/journal"), "clicks", format_)
    lines = structured.replace("/data", str(tmp_path / "data"))
    assert lines.count(".awaitTermination()") == 1
    exec(lines.replace(".awaitTermination()", ""), {"spark": spark})
    (query,) = spark.streams.active
    try:
        query.processAllAvailable()
        assert (tmp_path / "data/count/offsets/0").exists()
    finally:
        query.stop()


@pytest.mark.spark
def test_the_program_runs_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    """In a terminal, whose Ctrl-C goes to all that runs there: the driver, and Spark's JVM."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("all is well\nan error came\n")
    code = program().replace("/tmp/errors", str(tmp_path / "out")).replace("/var/log", str(logs))
    # As a newcomer has it: nobody told Spark which Python its workers shall run.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    bare["PATH"] = "/usr/bin:/bin"
    # Nor how the tests' workers are started and spoken with.
    bare["JAVA_TOOL_OPTIONS"] = re.sub(r"-Dspark\.python\.\S+", "", bare["JAVA_TOOL_OPTIONS"])
    with terminal([sys.executable, "-c", code], bare) as (process, printed, press):
        assert eventually(lambda: "('error', 1)" in printed()), printed()[-2000:]
        before = printed()
        press(b"\x03")
        assert process.wait(WAIT_S) == 130, printed()[-2000:]
    # All that had the terminal open has closed it: also what Spark's JVM said at its end is there.
    after = printed()[len(before) :]
    assert "SIGINT: stopping. Received records are kept" in after
    assert "Traceback" not in after
    assert list((tmp_path / "out/out").glob("batch=*/_SUCCESS"))


@contextmanager
def terminal(
    command: list[str], environ: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str], Callable[[bytes], object]]]:
    """Run a command in a terminal of its own; yield it, what it printed, and the keyboard."""
    keyboard, screen = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # raised when all have closed the screen
            while data := os.read(keyboard, 4096):
                seen.append(data)

    def take_terminal() -> None:
        fcntl.ioctl(screen, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        env=environ,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(screen)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, lambda: b"".join(seen).decode(), lambda keys: os.write(keyboard, keys)
    finally:
        process.kill()
        process.wait()
        reader.join(WAIT_S)
        os.close(keyboard)

"""The driver of the demo: a process that runs ``job``, is heard, killed, and cleaned up after.

Spark's driver is a small family: the Python program, its JVM, and the Python workers, which put
themselves into process groups of their own. ``kill`` ends the program and the JVM with one signal,
as the loss of a machine would; the workers notice it by themselves, as those on other machines do.
``end_family`` sees to it that none is left.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_FAMILY_END_S = 10.0
_LAST_LINES = 15
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class Driver:
    """One start of the job.

    Args:
        root: the demo's folder.
        environ: its environment.
        events: where what it says goes (see ``job.Reporter``), in order.
    """

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        events: queue.Queue[dict[str, Any]],
    ) -> None:
        self._log = root / "driver.log"
        self._events = events
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.job", str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._process.poll()

    def stop(self, timeout_s: float) -> int | None:
        """Have it stop gracefully; return its exit status, None when it takes longer."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
            self._reader.join()
        return self._process.poll()

    def kill(self) -> None:
        """End its process group by SIGKILL; all that it said is in the queue when this returns."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b'{"event"'):  # the JVM may print, too
                self._events.put(json.loads(line))


def environment(root: Path) -> dict[str, str]:
    """Return the environment for the demo's drivers: this Python, and settings of its own.

    Killed JVMs and workers delete nothing, so their temporary files are sent to the demo's folder.
    """
    conf, temporary = root / "conf", root / "tmp"
    conf.mkdir()
    temporary.mkdir()
    slots = (os.cpu_count() or 1) + 1  # one for the receiver, which mostly waits
    java = [
        f"-Djava.io.tmpdir={temporary}",
        "-XX:-UsePerfData",  # its file in /tmp would outlive a kill
        # A JVM that lives for seconds spends them on compiling: take the quick compiler alone.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
    ]
    settings = {
        "spark.master": f"local[{max(slots, 2)}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.local.dir": str(temporary),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    lines = "".join(f"{key} {value}\n" for key, value in settings.items())
    (conf / "spark-defaults.conf").write_text(lines)
    (conf / "log4j2.properties").write_text(_LOG4J)
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(temporary),
    }


def end_family(environ: Mapping[str, str]) -> None:
    """End every process that has the TMPDIR of this environment, which none but the demo's have.

    The variable finds also those that lost their parent, and never one that took a dead one's id.
    Does nothing where the platform has no /proc; there workers end by themselves a moment later.
    """
    entry = f"TMPDIR={environ['TMPDIR']}".encode()
    deadline_s = time.monotonic() + _FAMILY_END_S
    while (left := _with_environment(entry)) and time.monotonic() < deadline_s:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _with_environment(entry: bytes) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            # A zombie's is empty.
            if entry in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found

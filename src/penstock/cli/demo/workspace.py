"""The demo's temporary folder: all that its processes write is in it and goes with it.

Killed JVMs and workers delete nothing, so Spark's and Java's own temporary files are sent here too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Workspace", "workspace"]

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class Workspace:
    """The folders under ``root``. Made by ``workspace``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        self.checkpoint = root / "checkpoint"
        self.counts = root / "counts"
        self._conf = root / "conf"
        self.temporary = root / "tmp"

    def make(self) -> None:
        """Make what has to be there before the processes start."""
        for folder in (self.logs, self._conf, self.temporary):
            folder.mkdir()
        defaults = "".join(f"{key} {value}\n" for key, value in self._spark_settings().items())
        (self._conf / "spark-defaults.conf").write_text(defaults)
        (self._conf / "log4j2.properties").write_text(_LOG4J)

    @property
    def family(self) -> tuple[str, str]:
        """The variable that is in the environment of the demo's processes and of no others."""
        return "TMPDIR", str(self.temporary)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for the demo's processes: this Python, and settings of its own."""
        name, value = self.family
        return {
            **environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(self._conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            name: value,
        }

    def fed_files(self) -> list[Path]:
        """Return the log files, the rotated ones too."""
        return sorted(self.logs.iterdir())

    def _spark_settings(self) -> dict[str, str]:
        slots = (os.cpu_count() or 1) + 1  # one for the receiver, which mostly waits
        java = [
            f"-Djava.io.tmpdir={self.temporary}",
            "-XX:-UsePerfData",  # its file in /tmp would outlive a kill
            # A JVM that lives for seconds spends them on compiling: take the quick compiler alone.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
        ]
        return {
            "spark.master": f"local[{max(slots, 2)}]",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(java),
            "spark.local.dir": str(self.temporary),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.root / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }


@contextmanager
def workspace() -> Iterator[Workspace]:
    """Give a new workspace, and remove it in the end."""
    root = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        space = Workspace(root)
        space.make()
        yield space
    finally:
        shutil.rmtree(root, ignore_errors=True)

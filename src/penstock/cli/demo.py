"""``penstock demo``: counts words of real text through kill -9, and compares with a direct count.

    append text to a log file, and run examples/log_words.py over it
        -> (kill -9 the program, rotate the file, start it again)* -> all words are counted
        -> stop the program gracefully, and compare

Progress is read from the names in the checkpoint location's ``commits/``, and counts from the
program's Parquet files, so neither Spark nor penstock has a part in the comparison.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.doctor import check_java
from penstock.cli.output import print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError, PenstockError

app = typer.Typer()
_SHIPPED = Path(__file__).with_name("log_words.py")
_EXAMPLE = Path(__file__).parents[3] / "examples" / "log_words.py"
_PROGRAM = _SHIPPED if _SHIPPED.exists() else _EXAMPLE  # wheels have it beside this file
_BYTES_PER_S, _TICK_S, _IDLE_S, _HANGS_S = 2_000_000, 0.1, 30.0, 240.0
_RUN_S, _WORK_S = 13.0, 3.0
"""How long a run of the program is fed at least, and works at most before it is killed."""


@app.command("demo")
def demo(
    kills: Annotated[
        int, typer.Option(min=0, help="How often to kill the driver; each takes about 13 s more.")
    ] = 2,
    megabytes: Annotated[int, typer.Option(min=1, max=1000, help="How much text to feed.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Count words of growing log files on Spark through kill -9, and compare with a direct count.

    Exit status 1 unless every word that was fed is counted exactly once.
    """
    if not (java := check_java(os.environ)).ok:
        what = f"Spark needs Java 17 or later, found {java.found}"
        raise ConfigError(what, operation="run demo", hint=java.hint)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # cleans up
    text = source_text(megabytes * 1_000_000)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as folder:
        counted = run_demo(Path(folder), text, kills)
    facts = {**compare(Counter(text.split()), counted), "restarts": kills}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for line in table_lines(("", "count"), facts.items(), right=("count",)):
            print_line(line)
    if not facts["fed"] or facts["lost"] or facts["duplicated"]:
        print_line("The counts differ from what was fed.", err=True)
        raise typer.Exit(1)
    print_line("Every word that was fed is counted exactly once.", err=True)


def source_text(size: int) -> bytes:
    """Return about that many bytes of the library that comes with Python, in whole lines."""
    text = bytearray()
    for path in itertools.cycle(sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))):
        with suppress(OSError, UnicodeDecodeError):
            text += path.read_text("utf-8").encode() + b"\n"
        if len(text) >= size:
            break
    return bytes(text[: text.rfind(b"\n", 0, size) + 1])


def compare(fed: Counter[bytes], counted: Counter[bytes]) -> dict[str, int]:
    """Compare counts word by word, so that a loss and a double never cancel out."""
    lost, doubled = (fed - counted).total(), (counted - fed).total()
    return {"fed": fed.total(), "counted": counted.total(), "lost": lost, "duplicated": doubled}


def run_demo(folder: Path, text: bytes, kills: int) -> Counter[bytes]:
    """Feed the text, kill the program that often, and return what it counted.

    Raises:
        PenstockError: the program ended, or committed nothing for minutes.
    """
    run, words = _Run(folder, text), len(text.split())
    try:
        for number in range(kills + 1):  # each run has its part of the text
            run.start(len(text) * (number + 1) // (kills + 1))
            if number < kills:
                run.feed(random.uniform(0, _WORK_S), lambda: False)
                run.kill()
        run.feed(len(text) / _BYTES_PER_S + _RUN_S, lambda: run.fed == len(text))
        # Words that do not come are waited for, and then left to the comparison.
        run.feed(_IDLE_S, lambda: run.counted().total() >= words)
    finally:
        run.end()
    return run.counted()


class _Run:
    """The program, and the log file that it follows, in a folder."""

    def __init__(self, folder: Path, text: bytes) -> None:
        self.fed = 0
        self._folder, self._text = folder, text
        self._log = folder / "logs" / "app.log"
        self._log.parent.mkdir()

    def start(self, most: int) -> None:
        """Start the program, feed it up to that position, and wait until it commits words."""
        before, began_s, self._most = self._batches(), time.monotonic(), most
        self._per_tick = int(min((most - self.fed) / _RUN_S, _BYTES_PER_S) * _TICK_S) + 1
        with open(self._folder / "program.log", "ab") as log:
            self._program = subprocess.Popen(
                [sys.executable, _PROGRAM, self._folder / "logs/*.log", self._folder],
                stdout=log,
                stderr=log,
                env={**os.environ, **_environment(str(self._folder))},
                start_new_session=True,
            )
        print_line(f"program {self._program.pid} is started", err=True)
        if not self.feed(_HANGS_S, lambda: self._batches() > before):
            raise self._failed(f"committed no words for {_HANGS_S:g} s")
        print_line(
            f"lines are committed {time.monotonic() - began_s:.1f} s after the start", err=True
        )

    def feed(self, within_s: float, until: Callable[[], bool]) -> bool:
        """Append text until the time is up, or a condition holds (True)."""
        end_s = time.monotonic() + within_s
        while not (is_reached := until()) and time.monotonic() < end_s:
            if self._program.poll() is not None:
                raise self._failed(f"ended with status {self._program.returncode}")
            time.sleep(_TICK_S)
            with open(self._log, "ab") as log:  # a piece may end within a line
                self.fed += log.write(
                    self._text[self.fed : min(self._most, self.fed + self._per_tick)]
                )
        return is_reached

    def kill(self) -> None:
        """Kill the program with its JVM; rotate the log file the first time."""
        os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        print_line(f"kill -9 {self._program.pid}, with {self.fed:,} bytes fed", err=True)
        if not (rotated := self._log.with_name("app.log.1")).exists():
            self._log.rename(rotated)
            print_line("app.log is rotated to app.log.1", err=True)

    def end(self) -> None:
        """Have the program stop gracefully; no process of it is left."""
        self._program.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(_HANGS_S)
        with suppress(ProcessLookupError):  # its JVM has ended, too
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()

    def counted(self) -> Counter[bytes]:
        """Return the counts in all committed batches."""
        import pyarrow.parquet as pq  # imports pandas, which takes half a second

        counts: Counter[bytes] = Counter()
        for batch in self._batches():
            for row in pq.read_table(self._folder / "counts" / f"batch={batch}").to_pylist():
                counts[row["word"].encode()] += row["count"]
        return counts

    def _batches(self) -> set[int]:
        """Return the ids of the committed batches that had words."""
        commits = (self._folder / "checkpoint" / "commits").glob("[0-9]*")
        newest = max((int(each.name) for each in commits if each.name.isdecimal()), default=-1)
        written = {int(each.name[6:]) for each in (self._folder / "counts").glob("batch=*")}
        return {each for each in written if each <= newest}

    def _failed(self, what: str) -> PenstockError:
        log = (self._folder / "program.log").read_text(errors="replace")[-2000:]
        hint = "see what the machine lacks with `penstock doctor`"
        message = f"the program {what}. The end of its log:\n{log}\n"
        return PenstockError(message, operation="run demo", hint=hint)


def _environment(folder: str) -> dict[str, str]:
    """Return what the program needs; what a killed one leaves is in the folder."""
    slots = max(2, (os.cpu_count() or 1) + 1)  # one is the receiver's, which mostly waits
    java = f"-Djava.io.tmpdir={folder} -XX:-UsePerfData -XX:TieredStopAtLevel=1"
    submit = f'--master local[{slots}] --driver-java-options "{java}" pyspark-shell'
    own = {"PYSPARK_SUBMIT_ARGS": submit, "SPARK_LOCAL_DIRS": folder, "TMPDIR": folder}
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}

"""The demo itself: feeds and counts, kills the driver on the way, and compares the totals.

    start feeder and driver -> (kill -9 the driver, start it again)* -> all fed and committed
        -> stop the driver gracefully -> count again and compare

It ends with an error that has the last lines of the driver's log when a driver ends that should
not, or when no batch is committed for a while. Whatever happens, also Ctrl-C, no process and no
file of the demo is left.
"""

from __future__ import annotations

import queue
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.cli.demo.driver import Driver, end_family, environment
from penstock.cli.demo.feeder import Feeder, endless_text, source_files
from penstock.cli.demo.outcome import Outcome
from penstock.cli.demo.progress import Progress
from penstock.cli.demo.word_counts import compare, count_fed, count_sink
from penstock.errors import PenstockError

Tell = Callable[[str], None]
_FEED_S_PER_RUN = 13.0
"""How long to feed for each run of the driver: time for its start, and for some work before it is
killed."""
_FEED_BYTES_PER_S = 2_000_000
"""At most, so that a batch takes about as long as its interval, whatever the size."""
_TICK_S = 0.1
_TELL_S = 2.0
_HANGS_S = 240.0
_IDLE_BATCHES = 30
_STOP_S = 60.0
_LONGEST_WAIT_S = 1.5
"""Before a kill: a little more than a batch, so that every moment of one can be hit."""


def run_demo(total_bytes: int, kills: int, tell: Tell) -> Outcome:
    """Feed that much, kill the driver that often, and return what came out of it.

    Raises:
        PenstockError: a driver failed or hung.
    """
    root = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        (root / "logs").mkdir()
        run = _Run(root, total_bytes, kills, tell)
        try:
            run.follow()
            run.stop_driver()
        finally:
            run.end()
        tell("comparing with a direct count over the fed files")
        totals = compare(count_fed(sorted((root / "logs").iterdir())), count_sink(root / "counts"))
        return run.progress.outcome(totals)
    finally:
        shutil.rmtree(root, ignore_errors=True)


class _Run:
    """The feeder and the drivers of one demo."""

    def __init__(self, root: Path, total_bytes: int, kills: int, tell: Tell) -> None:
        self.progress = Progress()
        self._root = root
        self._tell = tell
        self._environ = environment(root)
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        # Each within its own stretch of the feeding, but the last: after it there is only recovery.
        self._kill_shares = [(k + random.uniform(0.3, 1.0)) / (kills + 1) for k in range(kills)]
        self._kill_s: float | None = None
        self._waits_since_s = self._told_s = time.monotonic()
        seconds = max(_FEED_S_PER_RUN * (kills + 1), total_bytes / _FEED_BYTES_PER_S)
        texts = endless_text(source_files())
        self._total_bytes = total_bytes
        self._feeder = Feeder(root / "logs", texts, total_bytes, seconds)
        self._driver = Driver(root, self._environ, self._events)
        self._feeder.start()
        tell(f"feeder and driver (pid {self._driver.pid}) started")

    def follow(self) -> None:
        """Watch and kill until every line is fed and committed, or no more of them come.

        Raises:
            PenstockError: a driver ended, or hangs.
        """
        while self._kill_shares or not self._is_drained():
            self._take_events(_TICK_S)
            self._check_driver()
            if self._kill_is_due(time.monotonic()):
                self._kill_and_restart()

    def stop_driver(self) -> None:
        """Have the driver finish what it has, and end.

        Raises:
            PenstockError: it does not, or not well.
        """
        self._tell("stopping the driver gracefully")
        status = self._driver.stop(_STOP_S)
        self._take_events(0)
        if status is None:
            raise self._failed(f"the driver did not stop within {_STOP_S:g} s")
        if status != 0:
            raise self._failed(f"the driver ended with status {status}")

    def end(self) -> None:
        """End the feeder and every process of the demo."""
        self._feeder.stop()
        self._driver.kill()
        end_family(self._environ)

    def _is_drained(self) -> bool:
        if not self._feeder.is_done:
            return False
        if self.progress.idle_batches >= _IDLE_BATCHES:
            self._tell(f"{_IDLE_BATCHES} batches brought nothing more")
            return True
        return self.progress.committed_lines >= self._feeder.lines

    def _take_events(self, wait_s: float) -> None:
        """Take in what the driver said, after waiting a little for the first of it."""
        try:
            event = self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait()
            while True:
                self._take(event)
                event = self._events.get_nowait()
        except queue.Empty:
            pass
        if time.monotonic() - self._told_s >= _TELL_S:
            self._told_s = time.monotonic()
            committed, fed = self.progress.committed_lines, self._feeder.lines
            self._tell(f"records {committed:,} of {fed:,} lines fed so far are committed")

    def _take(self, event: dict[str, Any]) -> None:
        recovered = len(self.progress.recovery_s)
        self.progress.take(event, time.monotonic())
        if self.progress.works and not self._feeder.is_followed.is_set():
            self._feeder.is_followed.set()  # records were read, so the first file is followed
            self._tell("the feeder rotates app.log to app.log.1 from now on")
        if event["event"] == "committed":
            self._waits_since_s = time.monotonic()
        for seconds in self.progress.recovery_s[recovered:]:
            self._tell(f"recovered: first commit {seconds:.1f} s after the restart")

    def _check_driver(self) -> None:
        if (status := self._driver.poll()) is not None:
            raise self._failed(f"the driver ended with status {status}")
        if time.monotonic() - self._waits_since_s > _HANGS_S:
            raise self._failed(f"no batch was committed for {_HANGS_S:g} s")

    def _kill_is_due(self, now_s: float) -> bool:
        """Whether to kill a driver that works now: at a random moment after its share is fed."""
        fed_share = self._feeder.bytes / self._total_bytes
        if not self._kill_shares or fed_share < self._kill_shares[0] or not self.progress.is_up:
            return False
        if self._kill_s is None:
            self._kill_s = now_s + random.uniform(0, _LONGEST_WAIT_S)
        return now_s >= self._kill_s

    def _kill_and_restart(self) -> None:
        self._driver.kill()
        self._take_events(0)
        self._kill_shares.pop(0)
        self._kill_s = None
        killed, self._driver = self._driver.pid, Driver(self._root, self._environ, self._events)
        self._waits_since_s = time.monotonic()
        self.progress.restarted(self._waits_since_s)
        self._tell(f"[red]kill -9[/] {killed}; started again as {self._driver.pid}")

    def _failed(self, message: str) -> PenstockError:
        return PenstockError(
            f"{message}; {self.progress.committed_lines} of {self._feeder.lines} lines were "
            f"committed. The last lines of its log:\n{self._driver.last_words() or '(empty)'}\n",
            operation="run demo",
            ids={"pid": self._driver.pid, "restarts": len(self.progress.recovery_s)},
            hint="see what the machine lacks with `penstock doctor`",
        )

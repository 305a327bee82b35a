"""The demo itself: feeds and counts, kills the driver on the way, and compares the totals.

    start feeder and job -> (kill -9 the job, start it again)* -> all fed and committed
        -> stop the job gracefully -> count again and compare

It is given up, with an error that holds the last words of the process at fault, when a process ends
that should not, or when no batch is committed for a while. Whatever happens, also Ctrl-C, no
process and no file of the demo is left.
"""

from __future__ import annotations

import os
import queue
import random
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.cli.demo.child import Child, end_family
from penstock.cli.demo.kill_plan import KillPlan
from penstock.cli.demo.outcome import Outcome
from penstock.cli.demo.progress import Progress
from penstock.cli.demo.view import View
from penstock.cli.demo.word_counts import compare, count_fed, count_sink
from penstock.cli.demo.workspace import Workspace, workspace
from penstock.errors import PenstockError

__all__ = ["run_demo"]

_FEED_S_PER_RUN = 13.0
"""How long to feed for each run of the driver: time for its start, and for some work before it is
killed."""
_FEED_BYTES_PER_S = 2_000_000
"""At most, so that a batch takes about as long as its interval, whatever the size."""
_TICK_S = 0.1
_HANGS_S = 90.0
_IDLE_BATCHES = 30
_STOP_S = 60.0
_LAST_WORDS = 15


def run_demo(total_bytes: int, kills: int, view: View) -> Outcome:
    """Feed that much, kill the driver that often, and return what came out of it.

    Raises:
        PenstockError: a process failed or hung.
    """
    with workspace() as space, view:
        with _Run(space, total_bytes, kills, view) as run:
            run.follow()
            run.stop_job()
        view.event("comparing with a direct count over the fed files")
        totals = compare(count_fed(space.fed_files()), count_sink(space.counts))
    return Outcome(
        fed=totals.fed,
        processed=totals.processed,
        lost=totals.lost,
        duplicated=totals.duplicated,
        restarts=run.progress.restarts,
        records_per_s=round(run.progress.lines_per_s, 1),
        recovery_s=round(max(run.progress.recovery_s, default=0.0), 2),
    )


class _Run:
    """The processes of one demo. A context: they run within it, and end with it."""

    def __init__(self, space: Workspace, total_bytes: int, kills: int, view: View) -> None:
        self.progress = Progress()
        self._space = space
        self._total_bytes = total_bytes
        self._feed_s = max(_FEED_S_PER_RUN * (kills + 1), total_bytes / _FEED_BYTES_PER_S)
        self._kill_plan = KillPlan(kills, random.Random())
        self._view = view
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._environ = space.environment(os.environ)
        self._children: list[Child] = []
        self._waits_since_s = time.monotonic()

    def __enter__(self) -> _Run:
        try:
            self._feeder = self._start_feeder()
            self._job = self._start_job()
        except BaseException:
            self._end()
            raise
        self._view.event(
            f"feeder (pid {self._feeder.pid}) and driver (pid {self._job.pid}) started"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def follow(self) -> None:
        """Watch and kill until every line is fed and committed, or no more of them come.

        Raises:
            PenstockError: a process ended, or hangs.
        """
        while not self._is_done():
            self._take_messages(_TICK_S)
            self._check_processes()
            if self._kill_is_due():
                self._kill_and_restart()

    def _is_done(self) -> bool:
        if self._kill_plan.left or not self.progress.fed_all:
            return False
        if self.progress.idle_batches >= _IDLE_BATCHES:
            self._view.event(f"[red]{_IDLE_BATCHES} batches brought nothing more[/]")
            return True
        return self.progress.is_drained

    def stop_job(self) -> None:
        """Have the job finish what it has, and end.

        Raises:
            PenstockError: it does not, or not well.
        """
        self._view.event("stopping the driver gracefully")
        self._job.close_input()
        status = self._job.wait(_STOP_S)
        self._take_messages(0)
        if status is None:
            raise self._failed(self._job, f"the driver did not stop within {_STOP_S:g} s")
        if status != 0:
            raise self._failed(self._job, f"the driver ended with status {status}")

    def _start_feeder(self) -> Child:
        return self._start(
            "feeder",
            *("--folder", str(self._space.logs)),
            *("--bytes", str(self._total_bytes)),
            *("--seconds", str(self._feed_s)),
        )

    def _start_job(self) -> Child:
        return self._start(
            "job",
            *("--logs", str(self._space.logs / "*.log")),
            *("--checkpoint", str(self._space.checkpoint)),
            *("--out", str(self._space.counts)),
        )

    def _start(self, name: str, *arguments: str) -> Child:
        log = self._space.root / f"{name}.log"
        module = f"{__package__}.{name}"
        child = Child(module, arguments, self._environ, log, self._messages)
        self._children.append(child)
        return child

    def _end(self) -> None:
        for child in self._children:
            child.close()
        end_family(*self._space.family)

    def _take_messages(self, wait_s: float) -> None:
        """Take in what was said, after waiting a little for the first of it."""
        try:
            message = self._messages.get(timeout=wait_s) if wait_s else self._messages.get_nowait()
            while True:
                self._take(message)
                message = self._messages.get_nowait()
        except queue.Empty:
            pass
        self._view.update(self.progress)

    def _take(self, message: dict[str, Any]) -> None:
        recovered = len(self.progress.recovery_s)
        self.progress.take(message, time.monotonic())
        match message["event"]:
            case "rotated":
                self._view.event(f"rotated {message['file']} to {message['to']}")
            case "started" if self.progress.has_records:
                self._feeder.close_input()  # records were read, so the first file is followed
            case "committed":
                self._waits_since_s = time.monotonic()
        for seconds in self.progress.recovery_s[recovered:]:
            self._view.event(f"recovered: first commit {seconds:.1f} s after the restart")

    def _check_processes(self) -> None:
        for child, may_end in ((self._job, False), (self._feeder, True)):
            status = child.poll()
            if status is not None and not (may_end and status == 0):
                raise self._failed(child, f"pid {child.pid} ended with status {status}")
        if time.monotonic() - self._waits_since_s > _HANGS_S:
            raise self._failed(self._job, f"no batch was committed for {_HANGS_S:g} s")

    def _kill_is_due(self) -> bool:
        progress = self.progress
        # When all is counted there are no more records, and the kill hits an idle driver.
        works = progress.is_up and (progress.has_records or progress.is_drained)
        share = progress.fed_bytes / self._total_bytes
        return self._kill_plan.is_due(share, is_processing=works, now_s=time.monotonic())

    def _kill_and_restart(self) -> None:
        self._job.kill()
        self._take_messages(0)
        batch = self.progress.batch
        when = "between two batches" if batch is None else f"while batch {batch} was running"
        killed = self._job.pid
        self._job = self._start_job()
        self.progress.restarted(time.monotonic())
        self._waits_since_s = time.monotonic()
        self._view.event(f"[red]kill -9[/] {killed}, {when}; started again as {self._job.pid}")

    def _failed(self, child: Child, message: str) -> PenstockError:
        return PenstockError(
            f"{message}; {self.progress.committed_lines} of {self.progress.fed_lines} lines were "
            f"committed. The last lines of its log:\n{_last_lines(child.log)}\n",
            operation="run demo",
            ids={"pid": child.pid, "restarts": self.progress.restarts},
            hint="see what the machine lacks with `penstock doctor`",
        )


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_WORDS:]) or "(empty)"

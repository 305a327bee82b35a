"""Ends a driver at a named step of what it makes durable, or deletes.

From then on no such step succeeds, so what the location holds is what a kill would have left.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from penstock.checkpoint import CheckpointLocation
from penstock.checkpoint.rdd_marks import RddMarks
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
from tests.waiting import eventually

STEPS: dict[str, tuple[type, str]] = {
    "write": (RddCheckpoints, "write"),
    "mark": (RddMarks, "add"),
    "commit": (CheckpointLocation, "commit"),
    "unmark": (RddMarks, "delete"),
    "delete": (RddCheckpoints, "delete"),
    "retire": (CheckpointLocation, "retire"),
}
"""In the order in which a driver takes them."""

PROTOCOL: dict[str, tuple[type, str]] = {
    "acquire": (CheckpointLocation, "acquire"),
    "plan": (CheckpointLocation, "plan"),
    "commit": (CheckpointLocation, "commit"),
    "retire": (CheckpointLocation, "retire"),
}
"""Those of every program, from its start on."""


class CrashedError(Exception):
    """The driver is as good as dead."""


@dataclass(frozen=True)
class Moment:
    """Before or after the ``nth`` time that a step is taken."""

    step: str
    nth: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'}-{self.step}-{self.nth}"

    @staticmethod
    def parse(text: str) -> Moment:
        when, step, nth = text.split("-")
        return Moment(step, int(nth), when == "after")


@contextmanager
def killed_at(
    moment: str | None,
    steps: Mapping[str, tuple[type, str]] = STEPS,
    ending: signal.Signals = signal.SIGKILL,
) -> Iterator[None]:
    """Kill this process, without a chance to tidy up, at the moment, if there is one.

    With SIGSTOP it is stopped there, and takes its next steps when it is continued.
    """
    parsed = Moment.parse(moment) if moment else None
    wakes = ending is signal.SIGSTOP

    # To this thread: a stop that another thread takes up would let this one take more steps first.
    def end() -> None:
        signal.pthread_kill(threading.get_ident(), ending)

    with Steps(parsed, end, steps, wakes=wakes).watched():
        yield


class Steps:
    """Counts the steps taken, and calls ``end`` at a moment; ``end`` may kill the process.

    No step is taken after it, unless the process ``wakes``.
    """

    def __init__(
        self,
        moment: Moment | None,
        end: Callable[[], None] = lambda: None,
        steps: Mapping[str, tuple[type, str]] = STEPS,
        *,
        wakes: bool = False,
    ) -> None:
        self._steps = steps
        self._wakes = wakes
        self.taken: Counter[str] = Counter()
        self.ended = False
        self._moment = moment
        self._end = end
        self._lock = threading.Lock()

    @contextmanager
    def watched(self) -> Iterator[Steps]:
        with ExitStack() as patches:
            for step, (owner, method) in self._steps.items():
                wrapped = self._wrap(step, getattr(owner, method))
                patches.enter_context(mock.patch.object(owner, method, wrapped))
            yield self

    def wait(self, step: str, count: int) -> None:
        """Wait until a step was taken that often; raises CrashedError when it will not be."""
        assert eventually(lambda: self.ended or self.taken[step] >= count)
        if self.ended:
            raise CrashedError(step)

    def _wrap(self, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self._reach(step, after=False)
            result = method(*args, **kwargs)
            self._reach(step, after=True)
            return result

        return stepped

    def _reach(self, step: str, *, after: bool) -> None:
        with self._lock:
            if self.ended:
                raise CrashedError(step)
            self.taken[step] += after
            nth = self.taken[step] + (not after)
            if self._moment == Moment(step, nth, after):
                self.ended = not self._wakes
                self._end()
                if self.ended:
                    raise CrashedError(str(self._moment))

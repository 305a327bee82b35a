"""A receiver under its host: the order of its calls, and the handling of their failures.

Invariant: one ``onStop`` for each ``onStart``, also for one that failed; ``onPause`` and
``onResume`` only come between the two.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from penstock.bounded_call import returns_in_time
from penstock.errors import PenstockError, ReceiverError
from penstock.receivers.task import ReceiverTask

_log = logging.getLogger(__name__)


class FailedCallError(Exception):
    """A method of the receiver failed: the message names it, the cause is its exception."""


class _HungError(Exception):
    """A method of the receiver did not return in time; its thread continues."""


class _State(enum.Enum):
    """ended -> started -> ended; started -> paused -> started, or paused -> ended."""

    ENDED = "ended"
    STARTED = "started"
    PAUSED = "paused"


class HostedReceiver:
    """Calls the methods of a task's receiver. Not thread-safe.

    Args:
        task: the receiver, and how long its calls may take.
        meanwhile: called at each poll while a call lasts.
    """

    def __init__(self, task: ReceiverTask, meanwhile: Callable[[], object]) -> None:
        self._task = task
        self._receiver = task.receiver
        self._meanwhile = meanwhile
        self._state = _State.ENDED

    @property
    def has_begun(self) -> bool:
        """Whether an ``onStop`` is owed to it."""
        return self._state is not _State.ENDED

    def begin(self) -> None:
        """Start the receiver, or resume a paused one.

        Raises:
            ReceiverError: it hangs; only a restart of this process fixes that.
            FailedCallError: it failed, and may be tried again.
        """
        is_paused = self._state is _State.PAUSED
        begin = self._receiver.onResume if is_paused else self._receiver.onStart
        self._state = _State.STARTED
        try:
            self._call(begin, self._task.settings.start_timeout_ms)
        except _HungError as e:
            raise ReceiverError(
                f"{begin.__name__} hangs",
                operation="start receiver",
                ids=self._task.ids,
                hint=f"let {begin.__name__} start threads and return; this process ends, and the "
                "receiver is started again in another one",
            ) from e
        except Exception as e:
            raise FailedCallError(f"{begin.__name__} failed") from e

    def pause(self, error: BaseException | None) -> bool:
        """Ask it to stay open while the journal cannot be written; return whether it does."""
        if self._state is _State.STARTED and isinstance(error, PenstockError):
            try:
                if self._receiver.onPause(error):
                    self._state = _State.PAUSED
            except Exception:
                _log.exception(
                    "onPause of receiver %s of stream %s failed",
                    self._task.name,
                    self._task.stream.name,
                )
        return self._state is _State.PAUSED

    def end(self) -> None:
        """Make it release its resources.

        Raises:
            FailedCallError: it failed, or hangs. It counts as ended nevertheless.
        """
        self._state = _State.ENDED
        try:
            self._call(self._receiver.onStop, self._task.settings.stop_timeout_ms)
        except Exception as e:
            raise FailedCallError("onStop failed") from e

    def _call(self, call: Callable[[], None], timeout_ms: int) -> None:
        poll_s = self._task.settings.poll_ms / 1000
        if not returns_in_time(call, timeout_ms / 1000, meanwhile=self._meanwhile, poll_s=poll_s):
            raise _HungError(f"it did not return within {timeout_ms / 1000:g} s")

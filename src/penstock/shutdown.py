"""Stops a program cleanly when its process ends: by a signal, or at its normal exit.

    SIGINT (Ctrl-C)    always, unless the program has a handler of its own or is a shell; status 130
    SIGTERM, exit      with spark.streaming.stopGracefullyOnShutdown; status 143 after SIGTERM

With that setting a DStream program processes received records first; without it, batches are
interrupted, and run again after a restart. A program of ``penstock.batched`` ends its batch.

A signal handler may run in the middle of anything that the main thread does, so it only starts a
thread that stops the program. When that is done the main thread ends by ``SystemExit``, as a
JVM does: in ``awaitTermination``, or wherever a second signal, which that thread sends until it is
noticed, finds it.
Spark's JVM and its Python workers take no notice of a terminal's SIGINT: pyspark starts the one so
that it ignores it, and the others in a process group of their own. pyspark's handler in the driver,
which is replaced here, cancels all jobs from within whatever the main thread does.

Source: ``StreamingContext.stopOnShutdown``, ``spark.streaming.stopGracefullyOnShutdown``.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_log = logging.getLogger(__name__)
_IMPATIENT_S = 1.0
"""Another SIGINT ends the process at once, unless it came together with the first one, as from a
wrapper that forwards the signals of its process group."""
_AGAIN_S = 0.05
_STEP_S = 0.5


def wait_in_steps(wait: Callable[[float], bool], timeout_s: float | None = None) -> bool:
    """Wait so that the main thread handles signals meanwhile, at most half a second late.

    Python does not interrupt a wait for a signal that another thread receives, or that comes just
    before the wait. It handles such a signal between two steps.

    Args:
        wait: waits for at most the given seconds; returns whether its condition holds.
        timeout_s: the longest time, None for no limit.

    Returns:
        Whether the condition holds.
    """
    deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not wait(max(0.0, min(_STEP_S, deadline_s - time.monotonic()))):
        if time.monotonic() >= deadline_s:
            return False
    return True


class InterruptedProgram(SystemExit, KeyboardInterrupt):
    """Ends the process without a traceback; programs may catch it as ``KeyboardInterrupt``."""


class Shutdown:
    """Calls ``stop`` once when the process has to end, and then lets it end.

    Args:
        stop: stops the program.
        message: what ``stop`` does, for the log.
        graceful: whether SIGTERM and the interpreter's exit are handled, too.
    """

    def __init__(
        self, stop: Callable[[], None], message: str = "stopping", *, graceful: bool = False
    ) -> None:
        self._stop = stop
        self._message = message
        self._graceful = graceful
        self._earlier: dict[int, Any] = {}
        self._first = threading.Lock()
        self._stopper: threading.Thread | None = None
        self._signal = signal.SIGTERM
        self._since_s = math.inf
        self._stopped = False
        self._noticed = False
        self._exiting = False

    def install(self) -> None:
        """Install the handlers."""
        if self._graceful:
            atexit.register(self._stop)
        if not _in_main_thread():
            if self._graceful:
                _log.warning(
                    "SIGTERM will not stop the program gracefully: start() was not called in the "
                    "main thread, which alone can handle signals"
                )
            return
        watched = [signal.SIGINT] if _is_free(signal.getsignal(signal.SIGINT)) else []
        if self._graceful:
            watched.append(signal.SIGTERM)
        for number in watched:
            self._earlier[number] = signal.signal(number, self._on_signal)

    def remove(self) -> None:
        """Remove the handlers; called when the program is stopped for any reason."""
        atexit.unregister(self._stop)
        if self._stopper is None and _in_main_thread():
            while self._earlier:
                signal.signal(*self._earlier.popitem())

    def leave(self) -> None:
        """End the main thread if the program was stopped by a signal; called after a wait."""
        if self._stopper is not None and _in_main_thread():
            self._stopper.join()
            self._exit()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._first.acquire(blocking=False):  # the next signal may come within this handler
            self._signal, self._since_s = signal.Signals(number), time.monotonic()
            self._stopper = threading.Thread(target=self._work, name="penstock-shutdown")
            self._stopper.start()
        elif self._stopped and not self._exiting and number == self._signal:
            self._noticed = True
            decides = self._decides()
            if callable(decides):
                decides(number, frame)
            else:
                self._exit()
        elif number == signal.SIGINT and time.monotonic() - self._since_s > _IMPATIENT_S:
            os._exit(_status(number))
        elif number == signal.SIGTERM and not self._stopped:
            _log.warning("SIGTERM: a graceful stop is under way; SIGKILL ends it now")

    def _work(self) -> None:
        atexit.unregister(self._stop)  # once is enough, even if it fails
        _log.warning("%s: %s", self._signal.name, self._message)
        try:
            self._stop()
        except Exception:
            _log.exception("The stop failed; unfinished batches run again after a restart")
        self._stopped = True
        main = threading.main_thread()
        # Python does not see a signal that comes just before a call that blocks until that returns.
        while main.is_alive() and not self._noticed:
            os.kill(os.getpid(), self._signal)
            time.sleep(_AGAIN_S)

    def _exit(self) -> None:
        decides = self._decides()
        if callable(decides) or decides is signal.SIG_IGN:
            return
        # Only once, and not during the interpreter's exit.
        if not self._exiting and threading.main_thread().is_alive():
            self._exiting = True
            kind = InterruptedProgram if self._signal == signal.SIGINT else SystemExit
            raise kind(_status(self._signal))

    def _decides(self) -> Any:
        """Return the previous handler, which may end the process after the stop."""
        is_replaced = self._signal == signal.SIGINT
        return signal.SIG_DFL if is_replaced else self._earlier[self._signal]


def _is_free(handler: Any) -> bool:
    """Whether the program has no SIGINT handler of its own, and is not a shell."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return False
    module = getattr(handler, "__module__", None) or ""
    return handler is signal.default_int_handler or module.startswith(("pyspark.", "penstock."))


def _status(number: int) -> int:
    return 128 + number


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

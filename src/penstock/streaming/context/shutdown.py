"""Stops a program gracefully when its process is told to end: by SIGTERM, or at its normal exit.

A signal handler may run in the middle of anything that the main thread does, so it only starts a
thread that stops the program. When that is done the main thread ends by ``SystemExit(143)``, as a
JVM does: in ``awaitTermination``, or wherever a second signal, sent by that thread, finds it.

Source: ``StreamingContext.stopOnShutdown``, ``spark.streaming.stopGracefullyOnShutdown``.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["GracefulShutdown"]

_log = logging.getLogger(__name__)
_EXIT_CODE = 128 + signal.SIGTERM


class GracefulShutdown:
    """Calls ``stop`` once when the process shall end, and then lets it end."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._earlier: Any = None
        self._installed = False
        self._stopper: threading.Thread | None = None
        self._stopped = False
        self._exiting = False

    def install(self) -> None:
        """Begin to watch for SIGTERM and the interpreter's exit."""
        atexit.register(self._stop)
        if not _in_main_thread():
            _log.warning(
                "SIGTERM will not stop the program gracefully: start() was not called in the main "
                "thread, which alone can handle signals"
            )
            return
        self._earlier = signal.signal(signal.SIGTERM, self._on_signal)
        self._installed = True

    def remove(self) -> None:
        """Watch no more; called when the program is stopped, by whom ever."""
        atexit.unregister(self._stop)
        if self._installed and self._stopper is None and _in_main_thread():
            signal.signal(signal.SIGTERM, self._earlier)
            self._installed = False

    def leave(self) -> None:
        """End the main thread if the program was stopped for that; called after a wait for it."""
        if self._stopper is not None and _in_main_thread():
            self._stopper.join()
            self._exit()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopper is None:
            _log.warning("SIGTERM: stopping gracefully")
            self._stopper = threading.Thread(target=self._work, name="penstock-shutdown")
            self._stopper.start()
        elif not self._stopped:
            _log.warning("SIGTERM: a graceful stop is under way; SIGKILL ends it now")
        elif callable(self._earlier):
            self._earlier(number, frame)
        else:
            self._exit()

    def _work(self) -> None:
        atexit.unregister(self._stop)  # once is enough, also when it fails
        try:
            self._stop()
        except Exception:
            _log.exception("The graceful stop failed; what is unfinished runs after a restart")
        self._stopped = True
        if threading.main_thread().is_alive():
            os.kill(os.getpid(), signal.SIGTERM)

    def _exit(self) -> None:
        if callable(self._earlier) or self._earlier is signal.SIG_IGN:
            return
        # Only once, and not into the interpreter's own ending.
        if not self._exiting and threading.main_thread().is_alive():
            self._exiting = True
            raise SystemExit(_EXIT_CODE)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

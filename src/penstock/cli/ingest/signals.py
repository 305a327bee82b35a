"""SIGTERM, SIGINT and SIGHUP: the first starts the drain, the second ends the process at once.

A closed terminal sends SIGHUP; under nohup it stays ignored.

A thread reads signals from a pipe, so the process reacts whatever its main thread is doing: a
handler in Python would run only between two of its steps, and might interrupt it while it holds a
lock.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def drain_on_signals(drain: Callable[[str], None]) -> Iterator[None]:
    """Call ``drain`` with the name of the first signal; for the main thread only."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    watched = [each for each in _SIGNALS if not (nohup and each is signal.SIGHUP)]
    before = {each: signal.signal(each, lambda *_: None) for each in watched}
    watcher = threading.Thread(
        target=_watch, args=(reading, drain), name="penstock-signals", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(wakeup_before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, drain: Callable[[str], None]) -> None:
    draining = False
    while numbers := os.read(reading, 64):
        for number in numbers:
            if number not in _SIGNALS:
                continue
            name = signal.Signals(number).name
            if draining:
                _log.warning(
                    "%s again: ending at once; the source has to resend unacked records", name
                )
                os._exit(128 + number)
            draining = True
            _log.info("%s: stopping the source, then publishing buffered records", name)
            drain(name)

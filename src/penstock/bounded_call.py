"""Calls that may hang: a user's code, and calls of librdkafka that may take minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def returns_in_time(
    call: Callable[[], object],
    within_s: float,
    *,
    meanwhile: Callable[[], object] | None = None,
    poll_s: float = 1.0,
) -> bool:
    """Make a call; return False if it continues when time is up, in a thread that no exit awaits.

    ``meanwhile`` is called every ``poll_s`` while the call runs.

    Raises:
        BaseException: what the call raises in time, or ``meanwhile``.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="penstock-bounded-call", daemon=True)
    thread.start()
    deadline_s = time.monotonic() + within_s
    while thread.is_alive() and (left_s := deadline_s - time.monotonic()) > 0:
        thread.join(left_s if meanwhile is None else min(left_s, poll_s))
        if meanwhile is not None and thread.is_alive():
            meanwhile()
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True

"""Calls of librdkafka that may take minutes, or never return."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["END_S", "returns_in_time"]

END_S = 5.0
"""For so long the end of a client is waited for."""


def returns_in_time(call: Callable[[], object], within_s: float) -> bool:
    """Make a call; return False if it goes on when time is up, in a thread that no exit awaits.

    Clients wait for answers when they end, for as long as brokers give none, and after a restart of
    brokers for their own threads: https://github.com/confluentinc/librdkafka/issues/4519 and 4131.
    One that is only dropped ends in the same way.

    Raises:
        Exception: what the call raises in time.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="penstock bounded call", daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True

"""Work in a thread of its own, beside the block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.waiting import WAIT_S

Work = Callable[[threading.Event], object]


@contextmanager
def background(work: Work) -> Iterator[None]:
    """Run ``work(end)`` beside the block, set ``end`` after the block, and wait for the work.

    Raises what the work raised, and AssertionError when it does not end.
    """
    end = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work(end)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)  # a failed test does not hang
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"{work} did not end"
        if raised:
            raise raised[0]

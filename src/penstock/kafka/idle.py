"""Clients that wait for the next task of their process: they have connections, and know leaders.

Each has threads and sockets, and goes on asking brokers. So one that no task takes for a time ends:
its program may be over while the process goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

KEPT_S = 60.0
"""Batches that are further apart do not notice what a new client costs."""
_Client = TypeVar("_Client")
_log = logging.getLogger(__name__)


class IdleClients(Generic[_Client]):
    """The idle clients of a kind. Thread-safe.

    Args:
        close: ends a client.
        most: how many are kept, the newest ones; None: all.
    """

    def __init__(self, close: Callable[[_Client], None], most: int | None = None) -> None:
        self._close = close
        self._most = most
        self._lock = threading.Lock()
        self._kept: list[_Kept[_Client]] = []
        """The oldest first."""
        self._is_watched = False

    def take(self, key: str) -> _Client | None:
        """Return the client that was kept last under a key, None if there is none."""
        with self._lock:
            for place in reversed(range(len(self._kept))):
                if self._kept[place].key == key:
                    return self._kept.pop(place).client
        return None

    def keep(self, key: str, client: _Client) -> None:
        """Keep a client, for ``KEPT_S`` if no task takes it."""
        with self._lock:
            self._kept.append(_Kept(key, client, time.monotonic() + KEPT_S))
            is_surplus = self._most is not None and len(self._kept) > self._most
            surplus = self._kept.pop(0) if is_surplus else None
            was_watched, self._is_watched = self._is_watched, True
        if not was_watched:
            threading.Thread(target=self._watch, name="penstock idle clients", daemon=True).start()
        if surplus is not None:
            self._close(surplus.client)

    def _watch(self) -> None:
        """End clients when their time is up, until there are none."""
        while True:
            with self._lock:
                if not self._kept:
                    self._is_watched = False
                    return
                left_s = self._kept[0].until_s - time.monotonic()
                ended = self._kept.pop(0) if left_s <= 0 else None
            if ended is None:
                time.sleep(left_s)
                continue
            try:
                self._close(ended.client)
            except Exception as error:  # the others end all the same
                _log.warning("An idle Kafka client did not end properly: %s", error)


@dataclass(frozen=True)
class _Kept(Generic[_Client]):
    key: str
    client: _Client
    until_s: float

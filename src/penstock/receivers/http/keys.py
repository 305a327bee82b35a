"""Idempotency-Key: which request was answered what. Pure; key_window makes it durable.

A key is kept as a hash, and with it a digest of what was sent under it, so that a key that is used
again for something else is noticed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from penstock.receivers.http.answers import Placement

DIGEST_BYTES = 16
MAX_KEYS = 200_000
"""The newest are kept; with their answers they take about 60 MB of memory."""


class KeptKey(NamedTuple):
    """A key whose request is stored."""

    key: bytes
    content: bytes
    at: Placement
    time_ms: int
    """By the clock of a KeyWindow."""


def key_hash(key: bytes) -> bytes:
    """Return what is kept of an Idempotency-Key."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def content_digest(kind: str, body: bytes) -> bytes:
    """Return what tells a repeated request from another one: of its type and its content."""
    return blake2b(body, digest_size=DIGEST_BYTES, person=kind.encode()).digest()


class KnownKeys:
    """The keys of a window of time, at most MAX_KEYS of them, oldest first."""

    def __init__(self, window_ms: int, keys: Iterable[KeptKey] = ()) -> None:
        self._window_ms = window_ms
        self._keys: OrderedDict[bytes, KeptKey] = OrderedDict((kept.key, kept) for kept in keys)

    def find(self, key: bytes, now_ms: int) -> KeptKey | None:
        """Return what is kept of a key, None when it is unknown, or from before the window."""
        kept = self._keys.get(key)
        return None if kept is None or self._is_over(kept, now_ms) else kept

    def add(self, kept: KeptKey) -> None:
        """Keep one more, and forget what is over, or too many."""
        self._keys[kept.key] = kept
        self._keys.move_to_end(kept.key)
        while len(self._keys) > MAX_KEYS or self._is_over(self._oldest(), kept.time_ms):
            self._keys.popitem(last=False)

    def __len__(self) -> int:
        return len(self._keys)

    def _oldest(self) -> KeptKey:
        return next(iter(self._keys.values()))

    def _is_over(self, kept: KeptKey, now_ms: int) -> bool:
        return kept.time_ms + self._window_ms <= now_ms

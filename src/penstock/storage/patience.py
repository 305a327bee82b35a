"""How long to wait for failing storage, or a failing broker, where only time is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.errors import PenstockError

__all__ = ["STORAGE_PATIENCE_S", "Patience"]

_log = logging.getLogger(__name__)
STORAGE_PATIENCE_S = 60.0
"""After this long the error is raised."""


class Patience:
    """Bears the errors of one operation that is tried again and again. Not thread-safe.

    Args:
        meanwhile: what happens as long as it fails, for the log.
        monotonic_s: measures for how long it does.
    """

    def __init__(self, meanwhile: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._meanwhile = meanwhile
        self._monotonic_s = monotonic_s
        self._failing_since_s: float | None = None

    def bear(self, error: PenstockError) -> None:
        """Take an error in; raise it when there were only errors for STORAGE_PATIENCE_S."""
        now_s = self._monotonic_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            _log.warning("%s, for up to %g s: %s", self._meanwhile, STORAGE_PATIENCE_S, error)
        if now_s - self._failing_since_s >= STORAGE_PATIENCE_S:
            raise error

    def recovered(self) -> None:
        """Take in that the operation succeeded."""
        self._failing_since_s = None

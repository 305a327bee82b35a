"""How long to wait for failing storage, or a failing broker, where only time is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.errors import PenstockError

_log = logging.getLogger(__name__)
STORAGE_PATIENCE_S = 60.0
"""After this long the error is raised."""


class Patience:
    """Bears the errors of one operation that is tried again and again. Not thread-safe.

    Args:
        meanwhile: what happens as long as it fails, for the log.
        monotonic_s: measures for how long it does.
        within_s: after this long the error is raised; STORAGE_PATIENCE_S if it is None.
    """

    def __init__(
        self,
        meanwhile: str,
        monotonic_s: Callable[[], float] = time.monotonic,
        within_s: float | None = None,
    ) -> None:
        self._meanwhile = meanwhile
        self._within_s = within_s
        self._monotonic_s = monotonic_s
        self._failing_since_s: float | None = None

    def bear(self, error: PenstockError) -> None:
        """Take an error in; raise it when there were only errors for that long."""
        now_s, within_s = self._monotonic_s(), self._within_s or STORAGE_PATIENCE_S
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            _log.warning("%s, for up to %g s: %s", self._meanwhile, within_s, error)
        if now_s - self._failing_since_s >= within_s:
            raise error

    def recovered(self) -> None:
        """Take in that the operation succeeded."""
        self._failing_since_s = None

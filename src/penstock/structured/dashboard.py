"""The dashboard of a session's queries: served from the first query on, for the process's life."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.conf import UiSettings

if TYPE_CHECKING:
    from penstock.metrics import Exporter
    from penstock.ui import Dashboard


class QueriesDashboard:
    """Shows the locations of queries. Thread-safe."""

    def __init__(self, settings: UiSettings, exporter: Exporter | None) -> None:
        self._settings = settings
        self._exporter = exporter
        self._lock = threading.Lock()
        self._served: Dashboard | None = None

    def show(self, location: str) -> None:
        """Show one more location, unless the dashboard is switched off."""
        if not self._settings.enabled:
            return
        from penstock.ui import dashboard_of_driver

        with self._lock:
            if self._served is None:
                self._served = dashboard_of_driver(self._settings, exporter=self._exporter)
            if self._served is not None:
                self._served.add(location)

"""The dashboard: pages about locations, served over HTTP by any process of penstock.

    a location's status (penstock.status) ──> pages ──> app ──> server
                                                 access ─┘

html, charts, words   text, numbers and drawings as HTML    pure
pages                 a page each, from plain values        pure
access                who may ask                           pure decisions
app                   routes                                Starlette
server                a thread with uvicorn

Starlette and uvicorn come with the extra ``ui``, and are imported when a dashboard is started.
"""

from penstock.ui.serve import (
    Dashboard,
    DashboardSettings,
    dashboard_of_driver,
    start_dashboard,
)

__all__ = ["Dashboard", "DashboardSettings", "dashboard_of_driver", "start_dashboard"]

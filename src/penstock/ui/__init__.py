"""The dashboard: pages about locations, served over HTTP by any process of penstock.

    a location's status (penstock.status) ──> pages ──> app ──> server
                                                 access ─┘

charts        numbers as drawings                             pure
pages         a page each, by the templates in templates/     pure
access        who may ask                                     pure decisions
app           routes                                          Starlette
connections   bounds of uvicorn's connections
serve         a thread with uvicorn

Starlette, uvicorn and Jinja2 come with the extra ``ui``. They are imported when a dashboard is
started.
"""

from penstock.ui.serve import (
    Dashboard,
    DashboardSettings,
    dashboard_of_driver,
    start_dashboard,
)

__all__ = ["Dashboard", "DashboardSettings", "dashboard_of_driver", "start_dashboard"]

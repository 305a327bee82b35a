"""What a location is doing, read from what its programs write: for dashboard, metrics and top.

``read_location`` returns one LocationStatus (penstock.status.model), ``LocationReader`` the same
again and again, and ``SharedStatus`` shares it among all who look. ``health`` judges it.
"""

from penstock.status.health import Health, Level, Reason, ago, duration, health, size
from penstock.status.location import LocationReader, read_location
from penstock.status.model import LocationStatus
from penstock.status.shared import SharedStatus, Unreadable

__all__ = [
    "Health",
    "Level",
    "LocationReader",
    "LocationStatus",
    "Reason",
    "SharedStatus",
    "Unreadable",
    "ago",
    "duration",
    "health",
    "read_location",
    "size",
]

"""What a location is doing, read from what its programs write.

For the dashboard, the metrics and commands: ``read_location`` returns one LocationStatus
(penstock.status.model), ``LocationReader`` the same as often as asked, and ``SharedStatus`` shares
it among all who ask. ``health`` judges it.
"""

from penstock.status.health import Health, Level, Reason, health
from penstock.status.location import LocationReader, read_location
from penstock.status.model import LocationStatus
from penstock.status.shared import SharedStatus, Unreadable
from penstock.status.words import ago, duration, size

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

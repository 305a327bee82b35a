"""What was read of several locations, shared among all who ask.

A location is read on demand, and at most once in a second: those who ask meanwhile wait
for the same answer. One that takes long to read is read less often, so that looking costs at most a
tenth of a core. Nothing is read in between, and only the newest answer is held.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.errors import PenstockError, StorageError
from penstock.status.checks import Checks, read_checks
from penstock.status.letters import read_letters
from penstock.status.links import with_lags
from penstock.status.location import LocationReader
from penstock.status.model import DeadLetterStatus, LocationStatus
from penstock.status.places import find_place

__all__ = ["SharedStatus", "Unreadable"]

T = TypeVar("T")
_STATUS_S = 1.0
_DETAILS_S = 5.0
_VALIDATION_S = 60.0
_SHARE = 10
_USER = re.compile(r"^[^/]*[:@].*@|^[^/]*@")
_PATIENCE_S = 10.0
"""So long one who asks waits for what another reads: a store that hangs holds few threads."""
_MOST_LOCATIONS = 200
"""Of a session that starts queries for ever, the first are shown."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A location that cannot be read."""

    location: str
    name: str
    error: str


Letters = Mapping[str, tuple[DeadLetterStatus, ...]]


class _Shared(Generic[T]):
    """The newest result of a call, made again when it is asked for and old."""

    def __init__(self, read: Callable[[], T], max_age_s: float) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._known: tuple[T] | None = None
        self._until_s = 0.0

    def get(self) -> T:
        """Return it.

        Raises:
            StorageError: another has been reading it for long.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise StorageError(
                f"it is still being read, after {_PATIENCE_S:.0f} s",
                operation="read location",
                hint="see whether its storage answers",
            )
        try:
            if self._known is None or time.monotonic() >= self._until_s:
                began_s = time.monotonic()
                self._known = (self._read(),)
                ended_s = time.monotonic()
                self._until_s = ended_s + max(self._max_age_s, _SHARE * (ended_s - began_s))
            return self._known[0]
        finally:
            self._lock.release()


class _Location:
    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._reader = LocationReader(path, name)
        self._status = _Shared(self._read_status, _STATUS_S)
        self.letters = _Shared(self._read_letters, _DETAILS_S)
        self.checks = _Shared(lambda: self._read_checks(validated=False), _DETAILS_S)
        self.validation = _Shared(lambda: self._read_checks(validated=True), _VALIDATION_S)

    def status(self) -> LocationStatus | Unreadable:
        """Return its status, not older than a second or so."""
        try:
            return self._status.get()
        except StorageError as error:
            return Unreadable(_shown(self.path), self.name, str(error))

    def _read_status(self) -> LocationStatus | Unreadable:
        try:
            return self._reader.read()
        except PenstockError as error:
            return Unreadable(_shown(self.path), self.name, str(error))

    def _read_letters(self) -> Letters:
        status = self.status()
        if isinstance(status, Unreadable):
            return {}
        wanted = [each.name for each in status.streams if each.dead_letters_of]
        journal = find_place(self.path).journal if wanted else None
        return {} if journal is None else {name: read_letters(journal, name) for name in wanted}

    def _read_checks(self, *, validated: bool) -> Checks:
        status = self.status()
        if isinstance(status, Unreadable) or status.kind == "journal":
            return Checks()
        return read_checks(self.path, status.kind, validated=validated)


def _shown(path: str) -> str:
    """Return a path or URL without what may be secret: a user, a password, a query."""
    scheme, sign, rest = path.partition("://")
    return scheme + sign + _USER.sub("", rest.partition("?")[0]) if sign else path


def _name(path: str, taken: Collection[str]) -> str:
    """Return as many of a path's last parts as tell it from other locations."""
    parts = path.rstrip("/").split("/")
    names = ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))
    return next((each for each in names if each and each not in taken), path)


class SharedStatus:
    """Reads locations on demand. Thread-safe. Every method raises IndexError for no such location.

    Args:
        paths: paths or URLs of checkpoint locations and journals.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._locations: list[_Location] = []
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Read one more location from now on, after all others, unless it is known."""
        with self._lock:
            if path not in self.paths and len(self._locations) < _MOST_LOCATIONS:
                taken = {location.name for location in self._locations}
                self._locations.append(_Location(path, _name(_shown(path), taken)))

    @property
    def paths(self) -> tuple[str, ...]:
        """What is read, in order."""
        return tuple(location.path for location in self._locations)

    def all(self) -> list[LocationStatus | Unreadable]:
        """Return the status of each location, in order, not older than a second or so."""
        found = [location.status() for location in self._locations]
        known = [each for each in found if isinstance(each, LocationStatus)]
        return [
            with_lags(each, known) if isinstance(each, LocationStatus) else each for each in found
        ]

    def get(self, index: int) -> LocationStatus | Unreadable:
        """Return the status of one location."""
        return self._locations[index].status()

    def letters(self, index: int) -> Letters:
        """Return the newest dead letters of a location, by the streams that hold them."""
        return self._locations[index].letters.get()

    def checks(self, index: int, *, validated: bool = False) -> Checks:
        """Return what inspect says of a location, and what validate does if that is wanted."""
        location = self._locations[index]
        return (location.validation if validated else location.checks).get()

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
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Generic, TypeVar

from penstock.errors import PenstockError, StorageError
from penstock.status.checks import Checks, read_checks
from penstock.status.letters import read_letters
from penstock.status.links import linked, needs_others
from penstock.status.location import LocationReader
from penstock.status.model import DeadLetterStatus, LocationStatus
from penstock.status.places import find_place

T = TypeVar("T")
_STATUS_S = 1.0
_DETAILS_S = 5.0
_VALIDATION_S = 60.0
_SHARE = 10
_USER = re.compile(r"^[^/]*[:@].*@|^[^/]*@")
_GLANCE_S = 2.0
"""So long those who ask for all locations wait for each of them: one may hang."""
_PATIENCE_S = 10.0
"""So long those who ask for one wait for it, and what was known of it is shown meanwhile."""
_MOST_LOCATIONS = 200
"""Of a session that starts queries for ever, the first are shown."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A location that cannot be read."""

    location: str
    name: str
    error: str


Letters = Mapping[str, tuple[DeadLetterStatus, ...]]


class _Reading(Generic[T]):
    """One call in a thread of its own, which no process waits for at its end."""

    def __init__(self, read: Callable[[], T]) -> None:
        self.since_ms = time.time_ns() // 1_000_000
        self._began_s = time.monotonic()
        self._result: Future[T] = Future()
        threading.Thread(
            target=self._run, args=(read,), name="penstock-status", daemon=True
        ).start()

    def _run(self, read: Callable[[], T]) -> None:
        try:
            self._result.set_result(read())
        except BaseException as error:  # for those who wait
            self._result.set_exception(error)

    @property
    def age_s(self) -> float:
        """For how long it has run, or did."""
        return time.monotonic() - self._began_s

    def is_done(self, within_s: float) -> bool:
        """Return whether it is done so long after it began."""
        return bool(wait([self._result], max(within_s - self.age_s, 0)).done)

    def result(self) -> T:
        """Return what it read, or raise what it raised, when it is done."""
        return self._result.result()


class _Shared(Generic[T]):
    """The newest result of a call, made again when it is asked for and old."""

    def __init__(self, read: Callable[[], T], max_age_s: float) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._known: tuple[T] | None = None
        self._until_s = 0.0
        self._reading: _Reading[T] | None = None

    def begin(self) -> _Reading[T] | None:
        """Read it now unless it is known or being read; return the call that runs."""
        with self._lock:
            if self._reading is None and time.monotonic() >= self._until_s:
                self._reading = _Reading(self._read_now)
            return self._reading

    def get(self, within_s: float) -> T:
        """Return it: what is known where it takes longer, but not for ever.

        Args:
            within_s: how long after its begin a call is waited for, by all who ask.

        Raises:
            StorageError: it takes longer, and nothing is known, or it takes very long.
        """
        reading = self.begin()
        known = self._known
        if reading is None:
            assert known is not None
            return known[0]
        if reading.is_done(within_s):
            return reading.result()
        if known is not None and reading.age_s < _PATIENCE_S:
            return known[0]
        since = datetime.fromtimestamp(reading.since_ms / 1000, timezone.utc)
        raise StorageError(
            f"no answer since {since:%Y-%m-%d %H:%M:%S} UTC",
            operation="read location",
            hint="see whether its storage answers",
        )

    def _read_now(self) -> T:
        began_s = time.monotonic()
        try:
            found = self._read()
            ended_s = time.monotonic()
            with self._lock:
                self._known = (found,)
                self._until_s = ended_s + max(self._max_age_s, _SHARE * (ended_s - began_s))
            return found
        finally:
            with self._lock:  # held by ``begin`` until it has noted this call, however short it was
                self._reading = None


class _Location:
    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._reader = LocationReader(path, name)
        self._status = _Shared(self._read_status, _STATUS_S)
        self.letters = _Shared(self._read_letters, _DETAILS_S)
        self.checks = _Shared(lambda: self._read_checks(validated=False), _DETAILS_S)
        self.validation = _Shared(lambda: self._read_checks(validated=True), _VALIDATION_S)

    def begin(self) -> None:
        """Read its status now, if it is old."""
        self._status.begin()

    def status(self, within_s: float) -> LocationStatus | Unreadable:
        """Return its status, not older than a second or so; see _Shared.get."""
        try:
            return self._status.get(within_s)
        except StorageError as error:
            return Unreadable(_shown(self.path), self.name, str(error))

    def _read_status(self) -> LocationStatus | Unreadable:
        try:
            return self._reader.read()
        except PenstockError as error:
            return Unreadable(_shown(self.path), self.name, str(error))

    def _read_letters(self) -> Letters:
        status = self.status(_PATIENCE_S)
        if isinstance(status, Unreadable):
            return {}
        wanted = [name for name, count in status.dead_letters.items() if count]
        journal = find_place(self.path).journal if wanted else None
        return {} if journal is None else {name: read_letters(journal, name) for name in wanted}

    def _read_checks(self, *, validated: bool) -> Checks:
        status = self.status(_PATIENCE_S)
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
        """Return the status of each location, in order, not older than a second or so.

        All are read at once; one that does not answer is waited for for ``_GLANCE_S``.
        """
        found = self._statuses()
        known = [each for each in found if isinstance(each, LocationStatus)]
        return [linked(each, known) if isinstance(each, LocationStatus) else each for each in found]

    def _statuses(self) -> list[LocationStatus | Unreadable]:
        locations = tuple(self._locations)
        for location in locations:
            location.begin()
        return [location.status(_GLANCE_S) for location in locations]

    def get(self, index: int) -> LocationStatus | Unreadable:
        """Return the status of one location, as ``all`` has it."""
        found = self._locations[index].status(_PATIENCE_S)
        if isinstance(found, Unreadable) or not needs_others(found):
            return found
        known = [each for each in self._statuses() if isinstance(each, LocationStatus)]
        return linked(found, known)

    def letters(self, index: int) -> Letters:
        """Return the newest dead letters of a location, by the streams or inputs they came from."""
        return self._locations[index].letters.get(_PATIENCE_S)

    def checks(self, index: int, *, validated: bool = False) -> Checks:
        """Return what inspect says of a location, and what validate does if that is wanted."""
        location = self._locations[index]
        return (location.validation if validated else location.checks).get(_PATIENCE_S)

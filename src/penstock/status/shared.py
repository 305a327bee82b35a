"""What was read of several locations, shared among all who ask.

A location is read on demand, and at most once in a second: those who ask meanwhile wait
for the same answer. One that takes long to read is read less often, so that looking costs at most a
tenth of a core. Nothing is read in between, and only the newest answer is held.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from penstock.errors import PenstockError, StorageError
from penstock.status.health import has_failed, is_stopped
from penstock.status.location import LocationReader
from penstock.status.model import (
    BatchStatus,
    ConsumerStatus,
    InputStatus,
    LocationStatus,
    StreamStatus,
)

_STATUS_S = 1.0
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


class _Reading:
    """One call in a thread of its own, which no process waits for at its end."""

    def __init__(self, read: Callable[[], LocationStatus | Unreadable]) -> None:
        self.since_ms = time.time_ns() // 1_000_000
        self._began_s = time.monotonic()
        self._result: Future[LocationStatus | Unreadable] = Future()
        threading.Thread(
            target=self._run, args=(read,), name="penstock-status", daemon=True
        ).start()

    def _run(self, read: Callable[[], LocationStatus | Unreadable]) -> None:
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

    def result(self) -> LocationStatus | Unreadable:
        """Return what it read, or raise what it raised, when it is done."""
        return self._result.result()


class _Location:
    """The newest status of a location, read again when it is asked for and old."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._reader = LocationReader(path, name)
        self._lock = threading.Lock()
        self._known: LocationStatus | Unreadable | None = None
        self._until_s = 0.0
        self._reading: _Reading | None = None

    def begin(self) -> _Reading | None:
        """Read it now unless it is known or being read; return the call that runs."""
        with self._lock:
            if self._reading is None and time.monotonic() >= self._until_s:
                self._reading = _Reading(self._read)
            return self._reading

    def status(self, within_s: float) -> LocationStatus | Unreadable:
        """Return its status: what is known where it takes longer, but not for ever.

        Args:
            within_s: how long after its begin a call is waited for, by all who ask.
        """
        reading = self.begin()
        known = self._known
        if reading is None:
            assert known is not None
            return known
        if reading.is_done(within_s):
            return reading.result()
        if known is not None and reading.age_s < _PATIENCE_S:
            return known
        since = datetime.fromtimestamp(reading.since_ms / 1000, timezone.utc)
        error = StorageError(
            f"no answer since {since:%Y-%m-%d %H:%M:%S} UTC",
            operation="read location",
            hint="see whether its storage answers",
        )
        return Unreadable(_shown(self.path), self.name, str(error))

    def _read(self) -> LocationStatus | Unreadable:
        began_s = time.monotonic()
        try:
            found = self._read_now()
            ended_s = time.monotonic()
            with self._lock:
                self._known = found
                self._until_s = ended_s + max(_STATUS_S, _SHARE * (ended_s - began_s))
            return found
        finally:
            with self._lock:  # held by ``begin`` until it has noted this call, however short it was
                self._reading = None

    def _read_now(self) -> LocationStatus | Unreadable:
        try:
            return self._reader.read()
        except PenstockError as error:
            return Unreadable(_shown(self.path), self.name, str(error))


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
        return [
            _linked(each, known) if isinstance(each, LocationStatus) else each for each in found
        ]

    def _statuses(self) -> list[LocationStatus | Unreadable]:
        locations = tuple(self._locations)
        for location in locations:
            location.begin()
        return [location.status(_GLANCE_S) for location in locations]

    def get(self, index: int) -> LocationStatus | Unreadable:
        """Return the status of one location, as ``all`` has it."""
        found = self._locations[index].status(_PATIENCE_S)
        if isinstance(found, Unreadable) or not _needs_others(found):
            return found
        known = [each for each in self._statuses() if isinstance(each, LocationStatus)]
        return _linked(found, known)


# -- what locations say of each other --
#
# A consumer names the location of its program or query. A program's is named after its input, and a
# query's input after the stream. What a program has committed reaches the journal with its next
# batch, so of one that was stopped its own location tells how far it is.


def _needs_others(status: LocationStatus) -> bool:
    """Whether other locations may tell more of this one."""
    consumers = (each for stream in status.streams for each in stream.consumers)
    return any(each.lag_records is None for each in status.inputs) or any(
        each.location is not None and not each.is_of(status.location) for each in consumers
    )


def _linked(status: LocationStatus, others: Sequence[LocationStatus]) -> LocationStatus:
    """Return a status with what other locations tell of its inputs' lags and its consumers."""
    if not _needs_others(status):
        return status
    consumers = [
        (stream.name, _judged(stream, consumer, [status]))
        for other in others
        for stream in other.streams
        for consumer in stream.consumers
        if consumer.is_of(status.location)
    ]
    inputs = []
    for found in status.inputs:
        own = [
            consumer
            for stream, consumer in consumers
            if consumer.name.startswith(f"{found.name}-")
            or (status.kind == "query" and stream == found.name)
        ]
        inputs.append(_with_lag(found, own))
    streams = [
        replace(each, consumers=tuple(_judged(each, c, others) for c in each.consumers))
        for each in status.streams
    ]
    return replace(status, inputs=tuple(inputs), streams=tuple(streams))


def _with_lag(found: InputStatus, own: Sequence[ConsumerStatus]) -> InputStatus:
    if found.lag_records is not None or not own:
        return found
    lag_ms = max((each.lag_ms for each in own if each.lag_ms is not None), default=None)
    return replace(found, lag_records=sum(each.lag_records for each in own), lag_ms=lag_ms)


def _judged(
    stream: StreamStatus, consumer: ConsumerStatus, programs: Sequence[LocationStatus]
) -> ConsumerStatus:
    """Return a consumer as the location of its program shows it, if that is known."""
    program = next((each for each in programs if consumer.is_of(each.location)), None)
    if program is None:
        return consumer
    committed = next((b for b in reversed(program.batches) if b.state == "committed"), None)
    lag = consumer.lag_records
    if committed is not None:
        lag = min(lag, _untaken(stream, committed))
    return replace(
        consumer,
        lag_records=lag,
        lag_ms=consumer.lag_ms if lag else None,
        is_stopped=is_stopped(program) and not has_failed(program),
    )


def _untaken(stream: StreamStatus, batch: BatchStatus) -> int:
    """Return how many records of a stream come after a batch."""
    taken: dict[str, int] = {}
    for each in batch.inputs:
        try:
            taken |= {writer: int(end) for writer, end in json.loads(each.end)[stream.name].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # another stream's, or one that is cut
    starts = {each.writer: taken.get(each.writer, each.start_offset) for each in stream.writers}
    return sum(max(each.end_offset - starts[each.writer], 0) for each in stream.writers)

"""Files that carry rates from the driver to the readers of sources, and settings back.

Spark runs the reader in a process of its own, and calls it with offsets only. So both sides use a
private folder on the driver's host, which ``register`` makes and the registered class carries:

    <reader>.source        {"name": ..., "options": {...}}: what the reader is, for the driver
    <reader>.rate          the limit of the batch that follows the last one
    start-<digest>.rate    the limit of the first batch of a query that starts again at an offset

A rate file says with ``after`` at which offset its batch begins. The reader names itself in the
latest offset that it reports, which Spark shows in the query's progress and stores nowhere: that is
how the driver knows whose progress it is.

``private_folder`` has how long they last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.conf import RateSettings, parse_duration_ms
from penstock.errors import PenstockError
from penstock.rate import RateOverride, RateOverrides
from penstock.storage import open_storage
from penstock.structured.private_folder import PrivateFolder

_log = logging.getLogger(__name__)
_PREFIX = "spark.streaming."
_POLL_S = 0.005
DEFAULT_INTERVAL_MS = 1000
"""Of a query without one, that begins a batch when the last one is done."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far a batch may go."""

    limit: float
    """The most records; 0 while the source is paused."""
    rate: float
    """Records per second."""
    why: str

    def under(self, override: RateOverride) -> Allowed:
        """Return what is left under an override."""
        if override.paused:
            return replace(self, limit=0, why="paused")
        if override.max_rate is None or override.max_rate >= self.rate:
            return self
        limit = self.limit * override.max_rate / self.rate
        return replace(self, limit=limit, rate=override.max_rate, why="highest rate overridden")


def settings_of_options(options: Mapping[str, str]) -> RateSettings:
    """Return the settings that a source's ``backpressure.*`` options are.

    Raises:
        ConfigError: one has a wrong value.
    """
    return RateSettings.from_conf(conf_of_options(options))


def conf_of_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that ``backpressure.*`` options are; Spark gives them in lower case.

    The estimator is the advised one unless an option names it. Spark's own setting, which turns
    back pressure on in DStream programs, has Spark's: ``pid``.
    """
    by_name = {name.lower(): name for name in _setting_names()}
    named = {
        by_name[name]: text for key, text in options.items() if (name := _full(key)) in by_name
    }
    return {f"{_PREFIX}backpressure.rateEstimator": "fit"} | named


def _full(option: str) -> str:
    return f"{_PREFIX}{option}".lower()


def _setting_names() -> list[str]:
    fields = RateSettings.__dataclass_fields__.values()
    return [name for each in fields for name in each.metadata["names"]]


def interval_of_options(options: Mapping[str, str]) -> int | None:
    """Return the option ``backpressure.batchInterval`` in milliseconds, None if it is not given."""
    for name, text in options.items():
        if name.lower() == "backpressure.batchinterval":
            return parse_duration_ms(name, text)
    return None


class RateFiles:
    """The files, as the driver and the readers use them."""

    def __init__(self, folder: str) -> None:
        self._folder = PrivateFolder(folder)

    def announce(self, reader: str, name: str, options: Mapping[str, str]) -> None:
        """Say what a reader is."""
        self._folder.write(f"{reader}.source", {"name": name, "options": dict(options)})

    def source(self, reader: str) -> tuple[str, dict[str, str]] | None:
        """Return a source's name and options, None if there is no such reader."""
        found = self._folder.read(f"{reader}.source")
        return None if found is None else (found["name"], found["options"])

    def allow(self, reader: str, after: Any, allowed: Allowed) -> None:
        """Set the limit of a reader's batch that begins at the offset ``after``."""
        self._folder.write(f"{reader}.rate", {"after": _digest(after), **asdict(allowed)})

    def allow_first(self, start: Any, allowed: Allowed) -> None:
        """Set the limit of the first batch of a query that starts again at an offset."""
        after = _digest(start)
        self._folder.write(f"start-{after}.rate", {"after": after, **asdict(allowed)})

    def allowed(self, reader: str, start: Any) -> tuple[Allowed | None, bool]:
        """Return a reader's newest limit, and whether it is that of the batch from ``start`` on."""
        found = self._folder.read(f"{reader}.rate")
        found = found or self._folder.read(f"start-{_digest(start)}.rate")
        if found is None:
            return None, False
        allowed = Allowed(found["limit"], found["rate"], found["why"])
        return allowed, found["after"] == _digest(start)

    def forget(self, reader: str) -> None:
        """Remove a reader's files."""
        for suffix in ("source", "rate"):
            self._folder.remove(f"{reader}.{suffix}")


class SourceRates:
    """A reader's side: the limit of each batch.

    Args:
        files: the folder.
        name: the source's, as in ``penstock rate``.
        options: the source's.
        location: the query's checkpoint, with the overrides of its rates; None if it is not known.
    """

    def __init__(
        self,
        files: RateFiles,
        name: str,
        options: Mapping[str, str],
        location: str | None = None,
    ) -> None:
        self.reader = uuid.uuid4().hex
        self._files = files
        settings = settings_of_options(options)
        assert settings.first_rate is not None  # back pressure is on
        self._own_interval_ms = interval_of_options(options)
        interval_ms = self._own_interval_ms or DEFAULT_INTERVAL_MS
        first = settings.first_rate
        self._known = Allowed(first * interval_ms / 1000, first, "initial rate")
        self._applied = self._known
        self._name = name
        self._overrides = _overrides_in(location)
        self._patience_s = min(0.25, interval_ms / 4000)
        self._has_planned = False
        self._options = dict(options)
        self._announce()

    def _announce(self) -> None:
        """Say what this reader is, unless it is said."""
        if self._files.source(self.reader) is None:
            self._files.announce(self.reader, self._name, self._options)

    def next_batch(self, start: Any) -> Allowed:
        """Return the limit of the batch from ``start`` on, under the override as it is now.

        The driver learns of the last batch when it has ended, as late as this is called: so the
        first call after a batch waits for what follows from it, for a moment.
        """
        self._announce()
        deadline = time.monotonic() + (self._patience_s if self._has_planned else 0)
        while True:
            found, is_next = self._files.allowed(self.reader, start)
            if is_next or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if found is not None and not self._has_planned and self._own_interval_ms is not None:
            # Before the reader said what it is, the driver knew the query's trigger alone.
            found = replace(found, limit=found.rate * self._own_interval_ms / 1000)
        self._known = self._known if found is None else found
        self._applied = self._known.under(self._override())
        return self._applied

    def _override(self) -> RateOverride:
        if self._overrides is None:
            return RateOverride()
        try:
            return self._overrides.get(self._name)
        except PenstockError as e:
            _log.warning("The override of the rate of %s does not apply: %s", self._name, e)
            return RateOverride()

    def planned(self) -> None:
        """Note that a batch with records was planned."""
        self._has_planned = True

    def report(self) -> dict[str, Any]:
        """Return what the query's progress is to show."""
        known = self._applied
        return {
            "reader": self.reader,
            "limit": round(known.limit, 1),
            "rate": round(known.rate, 1),
            "reason": known.why,
        }


def _overrides_in(location: str | None) -> RateOverrides | None:
    """Return the overrides in a checkpoint; None on a file system that only Hadoop has."""
    try:
        return None if location is None else RateOverrides(open_storage(location))
    except PenstockError:  # the driver warns of it
        return None


def _digest(offset: Any) -> str:
    """Return a name for an offset, however its JSON is written."""
    text = json.dumps(offset, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

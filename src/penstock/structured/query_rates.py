"""The rates of one run of a query: learns from its progress, keeps what it learned. Without Spark.

Kept in the query's checkpoint, in ``penstock/rates.json``: the text that the offset log of a
DStream program holds (penstock.rate.history), replaced at each batch. So it has the last batches of
earlier runs, too. Overrides are files in the checkpoint's ``rate``, like those of a DStream
program (penstock.rate.overrides). The reader applies a pause, so a rate learned meanwhile has none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.conf import RateSettings
from penstock.errors import LogFormatError, NotFoundError, PenstockError
from penstock.rate import (
    RATES_FILE,
    EndedBatch,
    InputRate,
    KeptRates,
    RateController,
    RateDecision,
    RateEstimator,
    RateOverride,
    RateOverrides,
    decode_rates,
    encode_rates,
)
from penstock.storage import Storage
from penstock.structured.rate_files import Allowed, conf_of_options

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a query tells of a batch that ended."""

    batch_id: int
    start_ms: int
    """When its trigger fired, milliseconds since the epoch."""
    duration_ms: int


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What it tells of one of its sources."""

    name: str
    options: Mapping[str, str]
    records: int
    limit: float | None
    """The limit that the batch had."""


@dataclass
class _Source:
    rate: InputRate
    controller: RateController
    why: str = ""
    batches: list[EndedBatch] = field(default_factory=list)


class QueryRates:
    """Learns and keeps the rates of one run of a query. Used by one thread.

    Args:
        storage: the query's checkpoint; None if it cannot be reached: then the rates do not outlive
            the run.
        interval_ms: the query's trigger interval, 0 for none.
        retained: how many batches the history has.
    """

    def __init__(self, storage: Storage | None, interval_ms: int, retained: int) -> None:
        self._storage = storage
        self._trigger_ms = interval_ms
        self._retained = retained
        self._kept = {} if storage is None else _read(storage)
        self._sources: dict[str, _Source] = {}
        self._last_end_ms: int | None = None
        self._problem = ""

    def on_batch(
        self,
        progress: Progress,
        source: SourceProgress,
        settings: RateSettings,
        interval_ms: int,
    ) -> Allowed:
        """Learn from a batch that ended; return the limit of the next one.

        Args:
            progress: of the batch.
            source: of one of the query's sources.
            settings: the source's.
            interval_ms: how long a batch may take.
        """
        known = self._sources.get(source.name)
        if known is None:
            known = self._sources[source.name] = self._open(source, settings, interval_ms)
        override = replace(self._override(source), paused=False)
        if override != known.rate.override:
            known.rate.follow(override)
        decision = known.rate.on_batch_completed(
            progress.start_ms + progress.duration_ms,
            source.records,
            progress.duration_ms,
            self._late_ms(progress, interval_ms),
        )
        assert decision is not None  # there is a controller
        if source.records:
            known.why = decision.why
            known.batches.append(EndedBatch(progress.batch_id, source.limit, decision))
            del known.batches[: -self._retained]
        return self._allowed(known)

    def ended(self, progress: Progress) -> None:
        """Keep what was learned from a batch, after each of its sources."""
        self._last_end_ms = progress.start_ms + progress.duration_ms
        if self._storage is None:
            return
        rates = {
            **self._kept,
            **{
                name: KeptRates(source.controller.to_json(), tuple(source.batches))
                for name, source in self._sources.items()
            },
        }
        try:
            self._storage.create(RATES_FILE, encode_rates(rates).encode(), overwrite=True)
        except PenstockError as e:
            self._note(e)

    def _open(self, source: SourceProgress, settings: RateSettings, interval_ms: int) -> _Source:
        kept = self._kept.get(source.name, KeptRates(None, ()))
        controller = _make_controller(source.name, settings, source.options, interval_ms, kept)
        rate = InputRate(interval_ms, settings, controller)
        return _Source(rate, controller, batches=list(kept.batches))

    def _allowed(self, source: _Source) -> Allowed:
        limit = source.rate.limits().records
        assert limit is not None  # there is a controller
        return Allowed(limit, source.controller.latest_rate, source.why)

    def _late_ms(self, progress: Progress, interval_ms: int) -> int:
        """Return how long after its tick the batch began, if the one before took until then."""
        if self._last_end_ms is None or not self._trigger_ms:
            return 0
        late = progress.start_ms % self._trigger_ms
        waited = progress.start_ms - self._last_end_ms
        return late if waited < late else 0

    def _override(self, source: SourceProgress) -> RateOverride:
        try:
            if self._storage is None:
                return RateOverride()
            return RateOverrides(self._storage).get(source.name)
        except PenstockError as e:
            self._note(e)
            return RateOverride()

    def _note(self, error: PenstockError) -> None:
        """Log an error, once for each problem: the query runs on."""
        if str(error) != self._problem:
            self._problem = str(error)
            _log.warning("The rates of a query are not up to date in its checkpoint: %s", error)


def _make_controller(
    name: str,
    settings: RateSettings,
    options: Mapping[str, str],
    interval_ms: int,
    kept: KeptRates,
) -> RateController:
    """Return a source's controller, which continues with the kept rate."""
    conf = conf_of_options(options)
    assert settings.first_rate is not None  # back pressure is on
    controller = RateController(
        name,
        RateEstimator.create(conf, interval_ms),
        initial_rate=settings.first_rate,
        min_rate=settings.min_rate,
        max_rate=settings.max_rate,
    )
    if kept.controller is not None:
        try:
            controller.restore(kept.controller)
        except LogFormatError as e:
            _log.warning("Source %s starts at its initial rate: %s", name, e)
    return controller


def first_limit(storage: Storage, offset: Any, interval_ms: int, place: str = "") -> Allowed | None:
    """Return the limit of the first batch of a query that starts again; None if nothing is kept.

    Args:
        storage: the query's checkpoint.
        offset: the offset JSON of one of its sources.
        interval_ms: how long a batch may take.
        place: the source's.
    """
    names = offset.keys() if isinstance(offset, dict) else ()
    kept = _read(storage)
    for name in (place, *names):
        if (found := kept.get(name)) is not None and found.batches:
            last: RateDecision = found.batches[-1].decision
            limit = last.rate * interval_ms / 1000
            return Allowed(limit, last.rate, f"after the restart: {last.why}")
    return None


def _read(storage: Storage) -> Mapping[str, KeptRates]:
    try:
        return decode_rates(storage.read(RATES_FILE).decode())
    except NotFoundError:
        return {}
    except (LogFormatError, UnicodeDecodeError) as e:
        _log.warning("A query starts at its initial rates: %s", e)
        return {}

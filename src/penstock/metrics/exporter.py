"""The metrics of one process: gathers samples from their sources, and renders them.

Each exporter has a registry of its own: penstock never touches prometheus-client's global one, so a
program's own metrics stay apart.

Locations are read at a scrape, through a SharedStatus: what that costs does not grow with the
number of those who scrape, nor beside a dashboard that shows the same ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from penstock import __version__
from penstock.errors import ConfigError
from penstock.metrics.batches import BatchMetrics
from penstock.metrics.catalog import (
    BUCKETS_S,
    BUILD_INFO,
    CATALOG,
    CONSUMER_COMMIT,
    CONSUMER_LAG,
    CONSUMER_LAG_S,
    DEAD_LETTERS,
    HEALTH,
    INPUT_LAG,
    INPUT_PAUSED,
    JOURNAL_BYTES,
    JOURNAL_DAMAGED,
    JOURNAL_MAX_BYTES,
    JOURNAL_UNCOMMITTED_BYTES,
    JOURNAL_WRITTEN,
    LOCATION_PROBLEMS,
    LOCATION_READABLE,
    LOST,
    RECEIVER_ERRORS,
    RECEIVER_STATE,
    Histogram,
    Metric,
    Sample,
)
from penstock.status import LocationStatus, SharedStatus, Unreadable, health
from penstock.status.model import StreamStatus

# -- from a location's status to samples. Pure --

_STATES = ("started", "restarting", "stopped", "dead")
_LEVELS = ("ok", "stopped", "warning", "error")


def location_samples(program: str, status: LocationStatus | Unreadable) -> Iterator[Sample]:
    """Return the samples of a location, as those of a program of that name."""
    if isinstance(status, Unreadable):
        yield Sample(LOCATION_READABLE, (program,), 0)
        return
    for metric, labels, value in _values(status):
        if value is not None:
            yield Sample(metric, (program, *labels), value)


_Value = tuple[Metric, tuple[str, ...], float | None]


def _values(status: LocationStatus) -> Iterator[_Value]:
    yield LOCATION_READABLE, (), 1
    yield HEALTH, (), _LEVELS.index(health(status).level)
    yield LOCATION_PROBLEMS, (), len(status.problems)
    for each in status.inputs:
        yield INPUT_LAG, (each.name,), each.lag_records
        yield INPUT_PAUSED, (each.name,), int(each.is_paused)
    streams = {each.name for each in status.streams}
    of_inputs = {each.name: 0 for each in status.inputs if each.name not in streams}
    for name, records in (of_inputs | dict(status.lost_records)).items():
        yield LOST, (name,), records
    # A gauge that began with the first refusals would hide them from delta().
    letters = {each.name: 0 for each in status.streams}
    for name, records in (letters | dict(status.dead_letters)).items():
        yield DEAD_LETTERS, (name,), records
    for stream in status.streams:
        yield from _stream_values(stream)


def _stream_values(stream: StreamStatus) -> Iterator[_Value]:
    name = (stream.name,)
    damaged = sum(writer.state == "damaged" for writer in stream.writers)
    yield JOURNAL_WRITTEN, name, sum(writer.end_offset for writer in stream.writers)
    yield JOURNAL_BYTES, name, stream.size_bytes
    yield JOURNAL_UNCOMMITTED_BYTES, name, stream.uncommitted_bytes
    yield JOURNAL_MAX_BYTES, name, stream.max_bytes
    yield JOURNAL_DAMAGED, name, damaged + len(stream.problems)
    yield LOST, name, stream.lost_records
    for receiver in stream.receivers:
        for state in _STATES:
            yield RECEIVER_STATE, (*name, receiver.name, state), int(receiver.state == state)
        yield RECEIVER_ERRORS, (*name, receiver.name), receiver.errors
    for consumer in stream.consumers:
        labels = (*name, consumer.name)
        yield CONSUMER_LAG, labels, consumer.lag_records
        yield CONSUMER_LAG_S, labels, (consumer.lag_ms or 0) / 1000
        committed_ms = consumer.committed_ms
        yield CONSUMER_COMMIT, labels, None if committed_ms is None else committed_ms / 1000


_MOST_SERIES = 1000
"""Of one metric; more are left out."""
_MOST_FAILED = 20
"""So many programs that ended with an error are still shown."""

Source = Callable[[], Iterable[Sample]]


class Exporter:
    """The metrics of one process. Thread-safe.

    Raises:
        ConfigError: prometheus-client is not installed.
    """

    def __init__(self) -> None:
        self._client = _client()
        self._registry = self._client.CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._lock = threading.Lock()
        self._sources: dict[object, Source] = {}
        self._failed: deque[BatchMetrics] = deque(maxlen=_MOST_FAILED)

    def add(self, key: object, source: Source) -> None:
        """Add a source of samples; it replaces an earlier one of that key."""
        with self._lock:
            self._sources[key] = source

    def remove(self, key: object) -> None:
        """Remove a source."""
        with self._lock:
            self._sources.pop(key, None)

    def add_program(self, batches: BatchMetrics) -> None:
        """Show a program's batches, and no longer how one of its name ended before."""
        with self._lock:
            kept = [each for each in self._failed if each.program != batches.program]
            self._failed = deque(kept, _MOST_FAILED)
        self.add(batches, batches.samples)

    def remove_program(self, batches: BatchMetrics, *, failed: bool) -> None:
        """Show a program no longer; one that failed is shown as down."""
        self.remove(batches)
        if failed:
            batches.down()
            with self._lock:
                self._failed.append(batches)

    def add_locations(
        self, locations: SharedStatus, *, program: str | None = None, stream: str | None = None
    ) -> None:
        """Show the status of locations.

        Args:
            locations: reads them.
            program: what they are called, if there is one; by default their own names.
            stream: show only this one of their streams.
        """
        highest: dict[tuple[str, ...], float | Histogram] = {}

        def samples() -> Iterator[Sample]:
            for status in locations.all():
                for each in location_samples(program or status.name, _only(stream, status)):
                    yield _never_less(each, highest)

        self.add(locations, samples)

    def collect(self) -> Iterator[Any]:
        """Yield prometheus-client's metric families: its interface of a collector."""
        with self._lock:
            failed = [each.samples for each in self._failed]
            sources = [*failed, *self._sources.values()]
        series: dict[Metric, dict[tuple[str, ...], float | Histogram]] = {
            BUILD_INFO: {(__version__,): 1}
        }
        for source in sources:
            for metric, labels, value in source():
                of_metric = series.setdefault(metric, {})
                if len(of_metric) < _MOST_SERIES:
                    of_metric[labels] = value  # never twice: Prometheus would refuse them all
        for metric in CATALOG:
            if metric in series:
                yield self._family(metric, series[metric])

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return the content type and the text of all metrics, in the form that is accepted."""
        encode, content_type = self._client.exposition.choose_encoder(accept)
        return content_type, encode(self._registry)

    def _family(self, metric: Metric, series: dict[tuple[str, ...], float | Histogram]) -> Any:
        core = self._client.core
        kinds = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        family = kinds[metric.kind](metric.name, metric.help, labels=metric.labels)
        for labels, value in series.items():
            if isinstance(value, Histogram):
                bounds = (*map(str, BUCKETS_S), "+Inf")
                buckets = list(zip(bounds, value.counts, strict=True))
                family.add_metric(labels, buckets, value.total)
            else:
                family.add_metric(labels, value)
        return family


def _never_less(sample: Sample, highest: dict[tuple[str, ...], float | Histogram]) -> Sample:
    """Return the sample; of the records ever written at least what it was.

    Damage of a newest block hides its end, and to Prometheus a counter that falls began anew.
    """
    if sample.metric is not JOURNAL_WRITTEN:
        return sample
    highest[sample.labels] = max(sample.value, highest.get(sample.labels, 0))
    return sample._replace(value=highest[sample.labels])


def _only(stream: str | None, status: LocationStatus | Unreadable) -> LocationStatus | Unreadable:
    if stream is None or isinstance(status, Unreadable):
        return status
    return replace(status, streams=tuple(s for s in status.streams if s.name == stream))


def _client() -> Any:
    try:
        client = import_module("prometheus_client")
        import_module("prometheus_client.core")
    except ImportError as error:
        raise ConfigError(
            "metrics need prometheus-client, which is not installed",
            operation="start metrics",
            hint="pip install 'penstock-spark[metrics]', or serve none",
        ) from error
    return client

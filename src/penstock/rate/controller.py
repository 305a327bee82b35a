"""The rate controller of one input: processes finished batches, keeps and publishes the limit."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, replace
from typing import cast

from penstock.conf import Conf, RateSettings
from penstock.errors import ConfigError, LogFormatError
from penstock.rate.estimator import RateEstimator, positive

_VERSION = 1


@dataclass(frozen=True, slots=True)
class RateDecision:
    """The decision after one batch: a line of the rate's history. Rates in records per second."""

    time_ms: int
    """When the batch ended, milliseconds since the epoch."""
    num_elements: int
    processing_delay_ms: int
    scheduling_delay_ms: int
    estimate: float | None
    """The estimate, None for no change."""
    rate: float
    """The limit from now on."""
    why: str
    """The estimator's reason."""


class RateController:
    """Keeps the rate limit of one input, updated at the end of each batch. Thread-safe.

    The limit starts at ``initial_rate``, or at the value that ``restore`` set, and then follows the
    estimator between ``min_rate`` and ``max_rate``; ``max_rate`` takes precedence over
    ``min_rate``.

    Subclass it and override ``publish`` to send the limit elsewhere.

    Source: ``org.apache.spark.streaming.scheduler.RateController``.

    Args:
        stream: the input's name.
        estimator: makes the estimates; used by this controller only.
        initial_rate: limit until the first estimate, records per second.
        min_rate: lowest limit, records per second.
        max_rate: highest limit, records per second.

    A limit that is not given is that of the configuration that ``RateEstimator.create`` got
    (``initialRate``, ``pid.minRate``, ``receiver.maxRate``), by default 1,000, 100, and none.

    Raises:
        ConfigError: a rate is not a finite number above 0.
    """

    def __init__(
        self,
        stream: str,
        estimator: RateEstimator,
        *,
        initial_rate: float | None = None,
        min_rate: float | None = None,
        max_rate: float | None = None,
    ) -> None:
        # A program that makes a controller means back pressure, whatever the switch says.
        settings = replace(estimator.settings or RateSettings(), backpressure_enabled=True)
        first_rate = settings.first_rate if initial_rate is None else initial_rate
        least_rate = settings.min_rate if min_rate is None else min_rate
        self.stream = stream
        self._estimator = estimator
        self._lock = threading.RLock()  # publish may ask for the latest rate
        self._wanted = positive("initial_rate", cast("float", first_rate))
        self._min_rate = positive("min_rate", least_rate)
        self._max_rate = _limit(settings.max_rate if max_rate is None else max_rate)
        self._estimator.limited_to(self.latest_rate)

    @staticmethod
    def isBackPressureEnabled(conf: Conf) -> bool:  # noqa: N802 (Spark's name)
        """Return whether ``spark.streaming.backpressure.enabled`` is set in Spark's configuration.

        Raises:
            ConfigError: a rate setting is invalid; the error names it.
        """
        return RateSettings.from_conf(conf).backpressure_enabled

    @property
    def latest_rate(self) -> float:
        """The effective limit, records per second."""
        with self._lock:
            return min(self._wanted, self._max_rate)

    def on_batch_completed(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> RateDecision:
        """Process a batch that ended, and publish the limit if it changed.

        The arguments are those of RateEstimator.compute.
        """
        batch = (time_ms, num_elements, processing_delay_ms, scheduling_delay_ms)
        with self._lock:
            estimate = self._estimator.compute(*batch)
            # A user's estimator may return anything; a limit is always a number.
            if estimate is not None and math.isfinite(estimate):
                self._set(max(estimate, self._min_rate), self._max_rate)
            return RateDecision(*batch, estimate, self.latest_rate, self._estimator.explain())

    def set_max_rate(self, rate_records_per_s: float | None) -> None:
        """Change the highest limit at once, None for none.

        Raises:
            ConfigError: the rate is not a finite number above 0.
        """
        with self._lock:
            self._set(self._wanted, _limit(rate_records_per_s))

    def publish(self, rate_records_per_s: float) -> None:
        """Called with each new limit, in order; does nothing by default.

        It is called under the controller's lock and should be fast.
        """

    def to_json(self) -> str:
        """Return the state that ``restore`` needs to continue with this limit."""
        with self._lock:
            return json.dumps({"version": _VERSION, "rate": self._wanted})

    def restore(self, text: str) -> None:
        """Continue with the limit from ``to_json``; call it before the first batch.

        Raises:
            LogFormatError: the text is damaged or of a newer version.
        """
        rate = _parse(self.stream, text)
        with self._lock:
            self._set(rate, self._max_rate)

    def _set(self, wanted: float, max_rate: float) -> None:
        before = self.latest_rate
        self._wanted, self._max_rate = wanted, max_rate
        self._estimator.limited_to(self.latest_rate)
        if self.latest_rate != before:
            self.publish(self.latest_rate)


def _limit(max_rate: float | None) -> float:
    return math.inf if max_rate is None else positive("max_rate", max_rate)


def _parse(stream: str, text: str) -> float:
    try:
        values = json.loads(text)
        if values["version"] != _VERSION:
            raise ValueError(f"version {values['version']!r}")
        return positive("rate", float(values["rate"]))
    except (ConfigError, KeyError, TypeError, ValueError) as e:
        raise LogFormatError(
            "the stored rate cannot be read",
            operation="restore rate",
            ids={"stream": stream},
            hint="delete it, and the input starts at its initial rate; or run the version of "
            "penstock that wrote it",
        ) from e

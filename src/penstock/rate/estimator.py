"""The estimator contract: computes the rate of the next batches from a finished batch.

An estimator decides only: it uses no clock, no thread and no I/O. It is called once for each batch,
in the order in which batches end, by one thread at a time. It cannot know for certain which limit a
batch ran under: records that were received before a change may run after it.

Prior art: Spark's ``org.apache.spark.streaming.scheduler.rate.RateEstimator``.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from typing import Any

from penstock.conf import Conf, RateSettings, settings_of
from penstock.errors import ConfigError

_SETTING = "spark.streaming.backpressure.rateEstimator"


class RateEstimator(ABC):
    """Estimates the rate at which an input should deliver. Subclass it for a custom estimator."""

    settings: RateSettings | None = None
    """Of the configuration that ``create`` got: the limits of a RateController that has none."""

    @abstractmethod
    def compute(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> float | None:
        """Return the rate in records per second, None for no change.

        A batch without information yields None and never raises: a batch without records, without a
        processing delay, or with a time that is not after that of the previous batch.

        Args:
            time_ms: when the batch ended, milliseconds since the epoch.
            num_elements: its number of records.
            processing_delay_ms: how long its jobs took.
            scheduling_delay_ms: how late its first job started.
        """

    def limited_to(self, rate_records_per_s: float) -> None:  # noqa: B027 (not all need it)
        """Called with the limit that applies from now on.

        Before the first batch this is the initial rate, or the one from a checkpoint; later it is
        the result of each estimate, possibly reduced to a highest rate.
        """

    def explain(self) -> str:
        """Return the reason for the last result of ``compute`` in one line, for people to read."""
        return ""

    @staticmethod
    def create(conf: Conf, batch_interval_ms: int) -> RateEstimator:
        """Create the estimator that ``spark.streaming.backpressure.rateEstimator`` names.

        ``pid`` (the default), ``fit``, or the import path of a callable that takes
        ``(conf, batch_interval_ms)``, the configuration as a mapping, and returns a RateEstimator.

        Args:
            conf: Spark's configuration, ``ssc.conf`` or a mapping of names to values.
            batch_interval_ms: length of a batch; ``ssc.graph.batch_interval_ms`` of a program.

        Source: ``org.apache.spark.streaming.scheduler.rate.RateEstimator.create``.

        Raises:
            ConfigError: a setting is out of range, or the path is not that of an estimator.
        """
        settings = RateSettings.from_conf(conf)
        estimator = _make(settings, conf, batch_interval_ms)
        estimator.settings = settings
        return estimator


def _make(settings: RateSettings, conf: Conf, batch_interval_ms: int) -> RateEstimator:
    from penstock.rate.fit import FitRateEstimator  # these two import this module
    from penstock.rate.pid import PIDRateEstimator

    if settings.estimator == "fit":
        return FitRateEstimator(batch_interval_ms, settings.min_rate)
    if settings.estimator == "pid":
        return PIDRateEstimator(
            batch_interval_ms,
            settings.proportional,
            settings.integral,
            settings.derivative,
            settings.min_rate,
        )
    return _imported(settings.estimator, settings_of(conf), batch_interval_ms)


def _imported(path: str, conf: Conf, batch_interval_ms: int) -> RateEstimator:
    module, _, name = path.rpartition(".")
    try:
        make: Any = getattr(importlib.import_module(module), name)
        estimator = make(conf, batch_interval_ms)
    except Exception as e:
        raise _refused_estimator(path, "cannot be created") from e
    if not isinstance(estimator, RateEstimator):
        raise _refused_estimator(path, f"returns a {type(estimator).__name__}, not a RateEstimator")
    return estimator


def _refused_estimator(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"setting {_SETTING} is {path!r}, which {why}",
        operation="create rate estimator",
        ids={"setting": _SETTING},
        hint="set pid, fit, or the import path of a callable that takes (conf, batch_interval_ms) "
        "and returns a penstock.rate.RateEstimator",
    )


def positive(name: str, value: float) -> float:
    """Return ``value`` if it is finite and above 0, else raise ConfigError."""
    if not 0 < value < math.inf:  # NaN compares false
        raise _refused(name, value, "a finite number above 0")
    return value


def non_negative(name: str, value: float) -> float:
    """Return ``value`` if it is finite and not below 0, else raise ConfigError."""
    if not 0 <= value < math.inf:
        raise _refused(name, value, "a finite number of 0 or more")
    return value


def _refused(name: str, value: float, wanted: str) -> ConfigError:
    return ConfigError(
        f"{name} is {value!r}",
        operation="set a rate parameter",
        ids={"parameter": name},
        hint=f"give {wanted}",
    )

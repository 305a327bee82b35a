"""Creates the estimator that the configuration names."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.conf import Conf, RateSettings, settings_of
from penstock.errors import ConfigError
from penstock.rate.estimator import RateEstimator
from penstock.rate.fit import FitRateEstimator
from penstock.rate.pid import PIDRateEstimator

_SETTING = "spark.streaming.backpressure.rateEstimator"


def create_estimator(conf: Conf, batch_interval_ms: int) -> RateEstimator:
    """See RateEstimator.create."""
    settings = RateSettings.from_conf(conf)
    estimator = _make(settings, conf, batch_interval_ms)
    estimator.settings = settings
    return estimator


def _make(settings: RateSettings, conf: Conf, batch_interval_ms: int) -> RateEstimator:
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
        raise _refused(path, "cannot be created") from e
    if not isinstance(estimator, RateEstimator):
        raise _refused(path, f"returns a {type(estimator).__name__}, not a RateEstimator")
    return estimator


def _refused(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"setting {_SETTING} is {path!r}, which {why}",
        operation="create rate estimator",
        ids={"setting": _SETTING},
        hint="set pid, fit, or the import path of a callable that takes (conf, batch_interval_ms) "
        "and returns a penstock.rate.RateEstimator",
    )

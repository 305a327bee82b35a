"""Which estimator the configuration makes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import ConfigError
from penstock.rate import FitRateEstimator, PIDRateEstimator, RateController, RateEstimator

BACKPRESSURE = "spark.streaming.backpressure"
BATCHES = [(1000, 500, 250, 0), (2000, 500, 500, 100), (3000, 900, 600, 0)]


class Own(RateEstimator):
    """What a user may bring along."""

    def __init__(self, conf: Mapping[str, str], batch_interval_ms: int) -> None:
        self.rate = float(conf["own.rate"]) * batch_interval_ms

    def compute(
        self, time_ms: int, num_elements: int, processing_delay_ms: int, scheduling_delay_ms: int
    ) -> float | None:
        return self.rate


def no_estimator(conf: Mapping[str, str], batch_interval_ms: int) -> object:
    return object()


def estimates(estimator: RateEstimator) -> list[float | None]:
    return [estimator.compute(*batch) for batch in BATCHES]


def test_pid_is_the_default() -> None:
    assert isinstance(RateEstimator.create({}, 1000), PIDRateEstimator)
    assert estimates(RateEstimator.create({}, 1000)) == estimates(PIDRateEstimator(1000))


class SparksConf:
    """A SparkConf, as far as it is asked."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def getAll(self) -> list[tuple[str, str]]:
        return [(name.replace("_", "."), value) for name, value in self.values.items()]


def test_a_spark_conf_is_a_configuration() -> None:
    conf = SparksConf(spark_streaming_backpressure_enabled="true", own_rate="2")
    assert RateController.isBackPressureEnabled(conf)
    assert not RateController.isBackPressureEnabled({})
    assert isinstance(RateEstimator.create(conf, 1000), PIDRateEstimator)
    conf.values["spark_streaming_backpressure_rateEstimator"] = f"{__name__}.Own"
    assert estimates(RateEstimator.create(conf, 1000)) == [2000.0] * 3


def test_pid_with_its_settings() -> None:
    conf = {
        f"{BACKPRESSURE}.rateEstimator": "pid",
        f"{BACKPRESSURE}.pid.proportional": "0.5",
        f"{BACKPRESSURE}.pid.integral": "0.1",
        f"{BACKPRESSURE}.pid.derived": "0.05",
        f"{BACKPRESSURE}.pid.minRate": "3",
    }
    expected = estimates(PIDRateEstimator(1000, 0.5, 0.1, 0.05, 3.0))
    assert estimates(RateEstimator.create(conf, 1000)) == expected


def test_fit_with_its_lowest_rate() -> None:
    conf = {f"{BACKPRESSURE}.rateEstimator": "fit", f"{BACKPRESSURE}.pid.minRate": "3"}
    estimator = RateEstimator.create(conf, 1000)
    assert isinstance(estimator, FitRateEstimator)
    assert estimator.compute(1000, 1, 1_000_000, 0) == 3.0


def test_ones_own_by_import_path() -> None:
    conf = {f"{BACKPRESSURE}.rateEstimator": f"{__name__}.Own", "own.rate": "2.5"}
    assert RateEstimator.create(conf, 1000).compute(0, 0, 0, 0) == 2500.0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no.such.Estimator", "ModuleNotFoundError"),
        (f"{__name__}.Nothing", "AttributeError"),
        (f"{__name__}.Own", "KeyError: 'own.rate'"),
        (f"{__name__}.no_estimator", "returns a object, not a RateEstimator"),
    ],
)
def test_a_path_that_leads_to_no_estimator_is_refused(path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RateEstimator.create({f"{BACKPRESSURE}.rateEstimator": path}, 1000)
    assert f"{BACKPRESSURE}.rateEstimator is {path!r}" in str(caught.value)
    assert reason in str(caught.value)
    assert "Hint: set pid, fit, or the import path" in str(caught.value)


class OrderRateController(RateController):
    """As in the example from which many programs are made: ``RateController(id, estimator)``."""

    def publish(self, rate_records_per_s: float) -> None:
        pass


@pytest.mark.parametrize("switch", [{}, {f"{BACKPRESSURE}.enabled": "true"}])
def test_a_controller_has_the_limits_of_the_estimators_settings(switch: dict[str, str]) -> None:
    conf = {
        f"{BACKPRESSURE}.pid.minRate": "1.0",
        f"{BACKPRESSURE}.initialRate": "50",
        "spark.streaming.receiver.maxRate": "70",
        **switch,
    }
    controller = OrderRateController("orders", RateEstimator.create(conf, 1000))
    assert controller.latest_rate == 50.0
    for time_s in range(1, 20):
        controller.on_batch_completed(1000 * time_s, 50, 100_000, 1_000)
    assert controller.latest_rate == 1.0
    for time_s in range(20, 100):
        controller.on_batch_completed(1000 * time_s, 100, 10, 0)
    assert controller.latest_rate == 70.0


def test_a_controller_whose_limits_are_given() -> None:
    conf = {f"{BACKPRESSURE}.initialRate": "50", f"{BACKPRESSURE}.pid.minRate": "1"}
    estimator = RateEstimator.create(conf, 1000)
    controller = RateController("orders", estimator, initial_rate=40, min_rate=30, max_rate=60)
    assert controller.latest_rate == 40.0
    for time_s in range(1, 20):
        controller.on_batch_completed(1000 * time_s, 50, 20_000, 1_000)
    assert controller.latest_rate == 30.0
    assert RateController("orders", PIDRateEstimator(1000)).latest_rate == 1000.0

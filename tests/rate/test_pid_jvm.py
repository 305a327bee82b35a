"""The PID estimator against Spark's own class: the same bits, the same refusals."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ConfigError
from penstock.rate import PIDRateEstimator

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark

Parameters = tuple[int, float, float, float, float]


class JvmPid:
    """Spark's class through py4j, taking and giving Python's values."""

    def __init__(self, sc: SparkContext, parameters: Parameters) -> None:
        jvm: Any = sc._jvm
        package = jvm.org.apache.spark.streaming.scheduler.rate
        self._estimator = package.PIDRateEstimator(*parameters)

    def compute(self, *batch: int) -> float | None:
        found = self._estimator.compute(*batch)
        # Digits of a double survive the way as text; Option[Double] is boxed.
        return float(found.get()) if found.isDefined() else None


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack(">d", value)


def random_batches(rng: random.Random, count: int) -> list[tuple[int, int, int, int]]:
    """Return batches of all sizes, with zeros and jumps of the clock among them."""
    time_ms, batches = rng.randrange(2_000_000_000_000), []
    for _ in range(count):
        time_ms += rng.choice([-5000, 0, 1, 997, 1000, 1003, 86_400_000])
        size = int(10 ** rng.uniform(0, 9)) if rng.random() < 0.9 else 0
        delay_ms = int(10 ** rng.uniform(0, 6)) if rng.random() < 0.9 else 0
        late_ms = int(10 ** rng.uniform(0, 7)) if rng.random() < 0.5 else 0
        batches.append((max(time_ms, 0), size, delay_ms, late_ms))
    return batches


@pytest.mark.parametrize("seed", range(12))
def test_the_same_bits_on_random_sequences(sc: SparkContext, seed: int) -> None:
    rng = random.Random(seed)
    weights = [rng.choice([0.0, 1.0, 0.2, rng.uniform(0, 3)]) for _ in range(3)]
    parameters: Parameters = (
        rng.choice([50, 1000, rng.randrange(1, 100_000)]),
        weights[0],
        weights[1],
        weights[2],
        10 ** rng.uniform(-3, 4),
    )
    theirs, ours = JvmPid(sc, parameters), PIDRateEstimator(*parameters)
    estimates = 0
    for batch in random_batches(rng, 150):
        expected = theirs.compute(*batch)
        assert bits(ours.compute(*batch)) == bits(expected), batch
        estimates += expected is not None
    assert estimates > 20


def test_the_defaults_are_those_of_sparks_settings(sc: SparkContext) -> None:
    jvm: Any = sc._jvm
    package = jvm.org.apache.spark.streaming.scheduler.rate
    duration = jvm.org.apache.spark.streaming.Duration(700)
    theirs = package.RateEstimator.create(jvm.org.apache.spark.SparkConf(False), duration)
    ours = PIDRateEstimator(700)
    for batch in [(700, 500, 250, 0), (1400, 600, 800, 90), (2100, 10, 900, 400)]:
        found = theirs.compute(*batch)
        assert bits(ours.compute(*batch)) == bits(float(found.get()) if found.isDefined() else None)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, -1), (0, 0), *((p, v) for p in range(1, 5) for v in (-1.0, 0.0, float("nan")))],
)
def test_the_same_arguments_are_refused(sc: SparkContext, place: int, value: float) -> None:
    arguments: list[Any] = [1000, 1.0, 0.2, 0.1, 100.0]
    arguments[place] = value

    def refuses(make: Any, error: type[Exception]) -> bool:
        try:
            make()
        except error:
            return True
        return False

    parameters: Parameters = tuple(arguments)  # type: ignore[assignment]
    assert refuses(lambda: PIDRateEstimator(*parameters), ConfigError) == refuses(
        lambda: JvmPid(sc, parameters), Exception
    )

"""Rate limits and back pressure: how fast an input may deliver, and what holds it to that.

``RateEstimator`` and its kinds decide (pure), ``RateController`` keeps one input's limit,
``RateLimiter`` holds receivers to it, ``cut_range`` holds batches to it. ``penstock.rate.simulate``
tries an estimator on scripted loads, and ``penstock.rate.measures`` tells how well it did. Nothing
here needs Spark.
"""

from penstock.rate.controller import RateController, RateDecision
from penstock.rate.estimator import RateEstimator
from penstock.rate.fit import FitRateEstimator, Reasoning
from penstock.rate.limiter import RateLimiter
from penstock.rate.pid import PIDRateEstimator
from penstock.rate.range_limit import Carry, Cut, Lane, RangeLimits, cut_range
from penstock.rate.trace import TRACE

__all__ = [
    "TRACE",
    "Carry",
    "Cut",
    "FitRateEstimator",
    "Lane",
    "PIDRateEstimator",
    "RangeLimits",
    "RateController",
    "RateDecision",
    "RateEstimator",
    "RateLimiter",
    "Reasoning",
    "cut_range",
]

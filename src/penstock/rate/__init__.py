"""Rate limits and back pressure: how fast an input may deliver, and what holds it to that.

``RateEstimator`` and its kinds decide (pure), ``RateController`` keeps one input's limit,
``RateLimiter`` holds receivers to it, ``cut_range`` holds batches to it. ``InputRate`` brings
together what bounds one input, ``RateOverrides`` are changes at run time. Nothing here needs Spark.
``penstock.testing.rate_simulator`` tries an estimator on scripted loads.
"""

from penstock.rate.controller import RateController, RateDecision
from penstock.rate.estimator import RateEstimator
from penstock.rate.fit import FitRateEstimator, Reasoning
from penstock.rate.history import RATES_KEY, EndedBatch, KeptRates, decode_rates, encode_rates
from penstock.rate.input_rate import InputRate, ReceiveLimit
from penstock.rate.limiter import RateLimiter
from penstock.rate.overrides import RateOverride, RateOverrides
from penstock.rate.pid import PIDRateEstimator
from penstock.rate.range_limit import Carry, Cut, Lane, RangeLimits, cut_range
from penstock.rate.trace import TRACE

__all__ = [
    "RATES_KEY",
    "TRACE",
    "Carry",
    "Cut",
    "EndedBatch",
    "FitRateEstimator",
    "InputRate",
    "KeptRates",
    "Lane",
    "PIDRateEstimator",
    "RangeLimits",
    "RateController",
    "RateDecision",
    "RateEstimator",
    "RateLimiter",
    "RateOverride",
    "RateOverrides",
    "Reasoning",
    "ReceiveLimit",
    "cut_range",
    "decode_rates",
    "encode_rates",
]

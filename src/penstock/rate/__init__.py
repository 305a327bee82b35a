"""Rate limits and back pressure: how fast an input may deliver, and how that is enforced.

``RateEstimator`` and its subclasses decide (pure), ``RateController`` keeps one input's limit,
``RateLimiter`` applies it to receivers, ``cut_range`` applies it to batches. ``InputRate`` combines
the limits of one input, ``RateOverrides`` are changes at run time. Nothing here needs Spark.
"""

from penstock.logs import TRACE
from penstock.rate.controller import RateController, RateDecision
from penstock.rate.estimator import RateEstimator
from penstock.rate.fit import FitRateEstimator, Reasoning
from penstock.rate.history import (
    RATES_FILE,
    RATES_KEY,
    EndedBatch,
    KeptRates,
    decode_rates,
    encode_rates,
)
from penstock.rate.input_rate import InputRate, ReceiveLimit
from penstock.rate.limiter import RateLimiter
from penstock.rate.overrides import RateOverride, RateOverrides
from penstock.rate.pid import PIDRateEstimator
from penstock.rate.range_limit import Carry, Cut, Lane, RangeLimits, cut_range

__all__ = [
    "RATES_FILE",
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

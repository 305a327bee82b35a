"""Typed settings, read once from Spark's configuration and refused at once when they are wrong.

Names and defaults are Spark's wherever Spark has the setting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.errors import ConfigError
from penstock.model import COMPRESSIONS, parse_size

__all__ = [
    "DEFAULT_INITIAL_RATE",
    "WRITE_AHEAD_LOG",
    "RateSettings",
    "StreamingSettings",
    "settings_without_effect",
]

_T = TypeVar("_T")
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}

DEFAULT_INITIAL_RATE = 1000.0
"""Records/s of the first batch when back pressure is on and no setting bounds it.

Spark leaves that batch unbounded. A cold JVM takes seconds over its first batch whatever it holds,
and from here an estimator needs three batches to a million records/s, so little is lost.
"""


WRITE_AHEAD_LOG = "spark.streaming.receiver.writeAheadLog.enable"

_WRITE_AHEAD_LOGS = re.compile(r"spark\.streaming\.(receiver|driver)\.writeAheadLog\.\w+")


def settings_without_effect(conf: Mapping[str, str]) -> list[str]:
    """Return the settings of Spark's own write-ahead logs in a configuration: there are none here.

    Blocks are files that are written once and whole, so there is nothing to roll over, to close
    after a write or to batch.
    """
    return sorted(n for n in conf if _WRITE_AHEAD_LOGS.fullmatch(n) and n != WRITE_AHEAD_LOG)


@dataclass(frozen=True, slots=True)
class RateSettings:
    """Settings of rate limits and back pressure. Rates are records per second of one input.

    In the names, ``bp`` stands for ``spark.streaming.backpressure``.

    ==========================================  =======  ==========================================
    setting                                     default  meaning
    ==========================================  =======  ==========================================
    ``bp.enabled``                              false    whether the rate follows the batches
    ``bp.rateEstimator``                        pid      pid, fit, or an import path
    ``bp.initialRate``                          maxRate  limit of the first batches
    ``bp.pid.minRate``                          100      lowest rate, for every estimator
    ``bp.pid.proportional``                     1.0      PID's weight of the last error
    ``bp.pid.integral``                         0.2      PID's weight of the scheduling delay
    ``bp.pid.derived``                          0.0      PID's weight of the error's change
    ``spark.streaming.receiver.maxRate``        none     highest rate; goes before ``minRate``
    ``spark.streaming.kafka.``
    ``maxRatePerPartition``                     0        highest rate of one partition, 0 for none
    ``minRatePerPartition``                     1        fewest records of a partition in a batch
    ==========================================  =======  ==========================================
    """

    backpressure_enabled: bool = False
    estimator: str = "pid"
    initial_rate: float | None = None
    max_rate: float | None = None
    min_rate: float = 100.0
    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.0
    max_rate_per_partition: float | None = None
    min_records_per_partition: int = 1

    @property
    def first_rate(self) -> float | None:
        """The limit before any batch is done; finite with back pressure, None is unlimited."""
        if not self.backpressure_enabled:
            return self.max_rate
        if self.max_rate is None:
            return DEFAULT_INITIAL_RATE if self.initial_rate is None else self.initial_rate
        return self.max_rate if self.initial_rate is None else min(self.initial_rate, self.max_rate)

    @staticmethod
    def from_conf(conf: Mapping[str, str]) -> RateSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: a value cannot be parsed or is out of range; names the setting.
        """
        usual = RateSettings()
        pid, kafka = "spark.streaming.backpressure.pid", "spark.streaming.kafka"
        get = _Reader(conf)
        return RateSettings(
            get("spark.streaming.backpressure.enabled", _flag, usual.backpressure_enabled),
            get("spark.streaming.backpressure.rateEstimator", _estimator, usual.estimator),
            get("spark.streaming.backpressure.initialRate", _rate, None),
            get("spark.streaming.receiver.maxRate", _rate, None),
            get(f"{pid}.minRate", _rate, usual.min_rate),
            get(f"{pid}.proportional", _weight, usual.proportional),
            get(f"{pid}.integral", _weight, usual.integral),
            get(f"{pid}.derived", _weight, usual.derivative),
            get(f"{kafka}.maxRatePerPartition", _weight, 0.0) or None,
            get(f"{kafka}.minRatePerPartition", _positive, usual.min_records_per_partition),
        )


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Settings of a streaming program.

    ==========================================  ==========  =======================================
    setting                                     default     meaning
    ==========================================  ==========  =======================================
    ``spark.streaming.blockInterval``           200ms       longest wait before a block closes
    ``spark.streaming.concurrentJobs``          1           batch jobs that run at once
    ``spark.streaming.fileStream.``
    ``minRememberDuration``                     60s         how late a file may show up
    ``spark.streaming.gracefulStopTimeout``     10 batches  how long a graceful stop may take
    ``spark.streaming.receiver.``
    ``writeAheadLog.enable``                    see below   whether received blocks are fsynced
    ``spark.streaming.receiverRestartDelay``    2000ms      first delay before a restart
    ``spark.streaming.stopGracefullyOnShutdown`` false      stop gracefully on SIGTERM and exit
    ``spark.streaming.unpersist``               true        unpersist RDDs that are forgotten
    ``spark.files.ignoreMissingFiles``          false       go on without files that are gone
    ``spark.sql.streaming.minBatchesToRetain``  100         entries kept in the two logs
    ``spark.penstock.journal.compression``      none        none, lz4, snappy or zstd
    ``spark.penstock.journal.maxBytes``         none        most bytes of a stream's blocks, ``20g``
    ``spark.penstock.journal.maxLag``           none        most records of a stream not committed
    ``spark.penstock.journal.whenFull``         block       at these: the source waits, or fail
    ==========================================  ==========  =======================================

    ``write_ahead_log`` is None where it is not set: on with a checkpoint location, off without.
    ``rate`` holds those of back pressure.
    """

    block_interval_ms: int = 200
    concurrent_jobs: int = 1
    graceful_stop_timeout_ms: int | None = None
    receiver_restart_delay_ms: int = 2000
    min_batches_to_retain: int = 100
    journal_compression: str = "none"
    min_remember_duration_ms: int = 60_000
    stop_gracefully_on_shutdown: bool = False
    unpersist: bool = True
    ignore_missing_files: bool = False
    journal_max_bytes: int | None = None
    journal_max_lag: int | None = None
    journal_when_full: str = "block"
    write_ahead_log: bool | None = None
    rate: RateSettings = field(default_factory=RateSettings)

    @staticmethod
    def from_conf(conf: Mapping[str, str]) -> StreamingSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: a value cannot be parsed or is out of range; names the setting.
        """
        usual = StreamingSettings()
        get = _Reader(conf)
        return StreamingSettings(
            get("spark.streaming.blockInterval", _duration_ms, usual.block_interval_ms),
            get("spark.streaming.concurrentJobs", _positive, usual.concurrent_jobs),
            get("spark.streaming.gracefulStopTimeout", _duration_ms, None),
            get("spark.streaming.receiverRestartDelay", _duration_ms, 2000),
            get("spark.sql.streaming.minBatchesToRetain", _positive, usual.min_batches_to_retain),
            get("spark.penstock.journal.compression", _compression, usual.journal_compression),
            get(
                "spark.streaming.fileStream.minRememberDuration",
                _seconds_ms,
                get("spark.streaming.minRememberDuration", _seconds_ms, 60_000),
            ),
            get("spark.streaming.stopGracefullyOnShutdown", _flag, False),
            get("spark.streaming.unpersist", _flag, True),
            get("spark.files.ignoreMissingFiles", _flag, False),
            get("spark.penstock.journal.maxBytes", _size, None),
            get("spark.penstock.journal.maxLag", _positive, None),
            get("spark.penstock.journal.whenFull", _when_full, usual.journal_when_full),
            get(WRITE_AHEAD_LOG, _flag, None),
            RateSettings.from_conf(conf),
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    conf: Mapping[str, str]

    def __call__(self, name: str, parse: Callable[[str, str], _T], default: _T) -> _T:
        return parse(name, self.conf[name]) if name in self.conf else default


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in _UNITS_MS or int(match[1]) == 0:
        raise _refused(name, text, "a positive duration such as 200ms, 5s or 1m")
    return int(match[1]) * _UNITS_MS[match[2]]


def _seconds_ms(name: str, text: str) -> int:
    """Return a duration that Spark reads in seconds when it has no unit, in milliseconds."""
    return _duration_ms(name, text) * (1000 if text.strip().isdigit() else 1)


def _positive(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]+\s*", text) or int(text) < 1:
        raise _refused(name, text, "a whole number of 1 or more")
    return int(text)


def _size(name: str, text: str) -> int:
    size = parse_size(text)
    if not size:
        raise _refused(name, text, "bytes, or such as 500m or 20g")
    return size


def _when_full(name: str, text: str) -> str:
    if text.strip().lower() not in ("block", "fail"):
        raise _refused(name, text, "block or fail")
    return text.strip().lower()


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise _refused(name, text, "true or false")
    return text.strip().lower() == "true"


def _rate(name: str, text: str) -> float:
    value = _number(text)
    if not (0 < value < math.inf):
        raise _refused(name, text, "records per second, a finite number above 0")
    return value


def _weight(name: str, text: str) -> float:
    value = _number(text)
    if not (0 <= value < math.inf):
        raise _refused(name, text, "a finite number of 0 or more")
    return value


def _number(text: str) -> float:
    """Return the number in a text, NaN when there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _estimator(name: str, text: str) -> str:
    if not re.fullmatch(r"pid|fit|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text):
        raise _refused(name, text, "pid, fit, or an import path such as package.module.Class")
    return text


def _compression(name: str, text: str) -> str:
    if text.lower() not in COMPRESSIONS:
        raise _refused(name, text, f"one of {', '.join(COMPRESSIONS)}")
    return text.lower()


def _refused(name: str, text: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"setting {name} is {text!r}",
        operation="read settings",
        ids={"setting": name},
        hint=f"give {wanted}",
    )

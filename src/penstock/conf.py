"""Typed settings, read once from Spark's configuration and refused at once when they are wrong.

Names and defaults are Spark's wherever Spark has the setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import ConfigError

__all__ = ["StreamingSettings"]

_T = TypeVar("_T")
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_COMPRESSIONS = ("none", "lz4", "snappy", "zstd")


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Settings of a streaming program.

    ==========================================  ==========  =======================================
    setting                                     default     meaning
    ==========================================  ==========  =======================================
    ``spark.streaming.blockInterval``           200ms       longest wait before a block closes
    ``spark.streaming.concurrentJobs``          1           batch jobs that run at once
    ``spark.streaming.gracefulStopTimeout``     10 batches  how long a graceful stop may take
    ``spark.streaming.receiverRestartDelay``    2000ms      first delay before a restart
    ``spark.sql.streaming.minBatchesToRetain``  100         entries kept in the two logs
    ``spark.penstock.journal.compression``      none        none, lz4, snappy or zstd
    ==========================================  ==========  =======================================
    """

    block_interval_ms: int = 200
    concurrent_jobs: int = 1
    graceful_stop_timeout_ms: int | None = None
    receiver_restart_delay_ms: int = 2000
    min_batches_to_retain: int = 100
    journal_compression: str = "none"

    @staticmethod
    def from_conf(conf: Mapping[str, str]) -> StreamingSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: a value cannot be parsed or is out of range; names the setting.
        """
        usual = StreamingSettings()

        def get(name: str, parse: Callable[[str, str], _T], default: _T) -> _T:
            return parse(name, conf[name]) if name in conf else default

        return StreamingSettings(
            get("spark.streaming.blockInterval", _duration_ms, usual.block_interval_ms),
            get("spark.streaming.concurrentJobs", _positive, usual.concurrent_jobs),
            get("spark.streaming.gracefulStopTimeout", _duration_ms, None),
            get("spark.streaming.receiverRestartDelay", _duration_ms, 2000),
            get("spark.sql.streaming.minBatchesToRetain", _positive, usual.min_batches_to_retain),
            get("spark.penstock.journal.compression", _compression, usual.journal_compression),
        )


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in _UNITS_MS or int(match[1]) == 0:
        raise _refused(name, text, "a positive duration such as 200ms, 5s or 1m")
    return int(match[1]) * _UNITS_MS[match[2]]


def _positive(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]+\s*", text) or int(text) < 1:
        raise _refused(name, text, "a whole number of 1 or more")
    return int(text)


def _compression(name: str, text: str) -> str:
    if text.lower() not in _COMPRESSIONS:
        raise _refused(name, text, f"one of {', '.join(_COMPRESSIONS)}")
    return text.lower()


def _refused(name: str, text: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"setting {name} is {text!r}",
        operation="read settings",
        ids={"setting": name},
        hint=f"give {wanted}",
    )

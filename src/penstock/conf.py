"""Typed settings, read once from Spark's configuration and refused at once when they are wrong.

Names and defaults are Spark's wherever Spark has the setting. A setting is declared once, as a
field: its name, how its text is parsed, its default. docs/settings.md says what each one means.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeVar

from penstock.errors import ConfigError
from penstock.model import COMPRESSIONS, WHEN_FULL, WhenFull, parse_size

_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=str)
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

DEFAULT_INITIAL_RATE = 1000.0
"""Records/s of the first batch when back pressure is on and no setting bounds it.

Spark leaves that batch unbounded. A cold JVM takes seconds over its first batch whatever it holds,
and from here an estimator needs three batches to a million records/s, so little is lost.
"""

OnBatchFailure = Literal["stop", "continue"]
BadValues = Literal["fail", "replace"]
BAD_VALUES: tuple[BadValues, ...] = ("fail", "replace")
ON_BATCH_FAILURE: tuple[OnBatchFailure, ...] = ("stop", "continue")

CHECKPOINT_FILE_MANAGER = "spark.penstock.checkpointFileManagerClass"
_SPARKS_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
SINKS_BAD_VALUES = "spark.penstock.sinks.badValues"
WRITE_AHEAD_LOG = "spark.streaming.receiver.writeAheadLog.enable"


class _SparkConf(Protocol):
    """A ``pyspark.SparkConf``; this module works without pyspark."""

    def getAll(self) -> Iterable[tuple[str, str]]: ...  # noqa: N802 (Spark's name)


Conf = Mapping[str, str] | _SparkConf
"""Spark's configuration, as a ``SparkConf`` or as a mapping."""


def settings_of(conf: Conf) -> Mapping[str, str]:
    """Return a configuration as a mapping."""
    return conf if isinstance(conf, Mapping) else dict(conf.getAll())


def session_setting_names() -> list[str]:
    """Return the settings that a Spark session may have a value of its own for."""
    names = [n for each in fields(StreamingSettings) for n in each.metadata.get("names", ())]
    return [name for name in (*names, _SPARKS_FILE_MANAGER) if name.startswith("spark.sql.")]


def settings_without_effect(conf: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings whose names look like those of streaming programs, and that are none.

    That is a name that is misspelt, or a setting of Spark's that has no meaning here: those of its
    write-ahead logs, or the class of its file manager, where penstock's own is not set. Each comes
    with the setting that was meant, None when none is near.
    """
    known = {
        name
        for kind in (RateSettings, MetricsSettings, StreamingSettings, UiSettings)
        for each in fields(kind)
        for name in each.metadata.get("names", ())
    }
    prefixes = ("spark.streaming.", "spark.penstock.")
    unknown = sorted(name for name in conf if name.startswith(prefixes) and name not in known)
    if _SPARKS_FILE_MANAGER in conf and CHECKPOINT_FILE_MANAGER not in conf:
        unknown.append(_SPARKS_FILE_MANAGER)
    by_core = {_core(name): name for name in sorted(known)}
    return {
        name: next((by_core[core] for core in _near(_core(name), by_core)), None)
        for name in unknown
    }


def _core(name: str) -> str:
    """Return what tells a setting from the others; all begin alike."""
    return re.sub(r"^spark\.(sql\.)?(streaming|penstock)\.", "", name).lower()


def _near(core: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(core, known, n=1, cutoff=0.8)


def _setting(name: str, parse: Callable[[str, str], _T], default: _T, *older: str) -> _T:
    """Declare a setting. Of its name and its older ones the first that is set counts."""
    return field(default=default, metadata={"names": (name, *older), "parse": parse})


def _values(kind: type, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a class's settings that a configuration gives, by field."""
    values = {}
    for each in fields(kind):
        name = next((n for n in each.metadata.get("names", ()) if n in conf), None)
        if name is not None:
            values[each.name] = each.metadata["parse"](name, conf[name])
    return values


def parse_duration_ms(name: str, text: str) -> int:
    """Return a duration in milliseconds; raises ConfigError with the setting's name."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in _UNITS_MS or int(match[1]) == 0:
        raise _refused(name, text, "a positive duration such as 200ms, 5s or 1m")
    return int(match[1]) * _UNITS_MS[match[2]]


def _duration_or_zero_ms(name: str, text: str) -> int:
    return 0 if re.fullmatch(r"\s*0+\s*[a-z]*\s*", text.lower()) else parse_duration_ms(name, text)


def _seconds_ms(name: str, text: str) -> int:
    """Return a duration that Spark reads in seconds when it has no unit, in milliseconds."""
    return parse_duration_ms(name, text) * (1000 if text.strip().isdigit() else 1)


def parse_positive(name: str, text: str) -> int:
    """Return a whole number above 0; raises ConfigError with the setting's name."""
    if not re.fullmatch(r"\s*[0-9]+\s*", text) or int(text) < 1:
        raise _refused(name, text, "a whole number of 1 or more")
    return int(text)


def _port(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]+\s*", text) or int(text) > 65_535:
        raise _refused(name, text, "a TCP port, 0 for any free one")
    return int(text)


def _size(name: str, text: str) -> int:
    size = parse_size(text)
    if not size:
        raise _refused(name, text, "bytes, or such as 500m or 20g")
    return size


def _path(name: str, text: str) -> str:
    if not text.strip():
        raise _refused(name, text, "a path or an fsspec URL")
    return text


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


def _rate_or_zero(name: str, text: str) -> float | None:
    """Return a rate, None for 0, which is how Spark writes that there is none."""
    return _weight(name, text) or None


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


def _class_path(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text):
        raise _refused(name, text, "an import path such as package.module.Class")
    return text


def _one_of(choices: tuple[_Choice, ...]) -> Callable[[str, str], _Choice]:
    def parse(name: str, text: str) -> _Choice:
        for choice in choices:
            if choice == text.strip().lower():
                return choice
        raise _refused(name, text, f"one of {', '.join(choices)}")

    return parse


def _refused(name: str, text: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"setting {name} is {text!r}",
        operation="read settings",
        ids={"setting": name},
        hint=f"give {wanted}",
    )


@dataclass(frozen=True, slots=True)
class RateSettings:
    """Settings of rate limits and back pressure. Rates are records per second of one input."""

    backpressure_enabled: bool = _setting("spark.streaming.backpressure.enabled", _flag, False)
    estimator: str = _setting("spark.streaming.backpressure.rateEstimator", _estimator, "pid")
    initial_rate: float | None = _setting("spark.streaming.backpressure.initialRate", _rate, None)
    max_rate: float | None = _setting("spark.streaming.receiver.maxRate", _rate, None)
    min_rate: float = _setting("spark.streaming.backpressure.pid.minRate", _rate, 100.0)
    proportional: float = _setting("spark.streaming.backpressure.pid.proportional", _weight, 1.0)
    integral: float = _setting("spark.streaming.backpressure.pid.integral", _weight, 0.2)
    derivative: float = _setting("spark.streaming.backpressure.pid.derived", _weight, 0.0)
    max_rate_per_partition: float | None = _setting(
        "spark.streaming.kafka.maxRatePerPartition", _rate_or_zero, None
    )
    min_records_per_partition: int = _setting(
        "spark.streaming.kafka.minRatePerPartition", parse_positive, 1
    )

    @property
    def first_rate(self) -> float | None:
        """The limit before any batch is done; finite with back pressure, None is unlimited."""
        if not self.backpressure_enabled:
            return self.max_rate
        if self.max_rate is None:
            return DEFAULT_INITIAL_RATE if self.initial_rate is None else self.initial_rate
        return self.max_rate if self.initial_rate is None else min(self.initial_rate, self.max_rate)

    @staticmethod
    def from_conf(conf: Conf) -> RateSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: a value cannot be parsed or is out of range; names the setting.
        """
        return RateSettings(**_values(RateSettings, settings_of(conf)))


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Settings of /metrics. Without a port it is not served."""

    port: int | None = _setting("spark.penstock.metrics.port", _port, None)
    host: str = _setting("spark.penstock.metrics.host", _path, "127.0.0.1")
    token_file: str | None = _setting("spark.penstock.metrics.tokenFile", _path, None)

    @staticmethod
    def from_conf(conf: Conf) -> MetricsSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: the port is none; names the setting.
        """
        return MetricsSettings(**_values(MetricsSettings, settings_of(conf)))


@dataclass(frozen=True, slots=True)
class UiSettings:
    """Settings of the dashboard that a driver serves."""

    enabled: bool = _setting("spark.penstock.ui.enabled", _flag, True, "spark.ui.enabled")
    host: str = _setting("spark.penstock.ui.host", _path, "127.0.0.1")
    port: int = _setting("spark.penstock.ui.port", _port, 4141)
    token_file: str | None = _setting("spark.penstock.ui.tokenFile", _path, None)

    @staticmethod
    def from_conf(conf: Conf) -> UiSettings:
        """Read the settings from Spark's configuration; raises ConfigError as RateSettings does."""
        return UiSettings(**_values(UiSettings, settings_of(conf)))


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Settings of a streaming program.

    ``write_ahead_log`` is None where it is not set: on with a checkpoint location, off without.
    ``rate`` holds those of back pressure, ``metrics`` those of /metrics.
    """

    block_interval_ms: int = _setting("spark.streaming.blockInterval", parse_duration_ms, 200)
    checkpoint_directory: str | None = _setting("spark.streaming.checkpoint.directory", _path, None)
    checkpoint_file_manager: str | None = _setting(CHECKPOINT_FILE_MANAGER, _class_path, None)
    checkpoint_location: str | None = _setting(
        "spark.sql.streaming.checkpointLocation", _path, None
    )
    concurrent_jobs: int = _setting("spark.streaming.concurrentJobs", parse_positive, 1)
    graceful_stop_timeout_ms: int | None = _setting(
        "spark.streaming.gracefulStopTimeout", parse_duration_ms, None
    )
    receiver_restart_delay_ms: int = _setting(
        "spark.streaming.receiverRestartDelay", parse_duration_ms, 2000
    )
    min_batches_to_retain: int = _setting(
        "spark.sql.streaming.minBatchesToRetain", parse_positive, 100
    )
    graph_checkpoint_interval_ms: int = _setting(
        "spark.penstock.graphCheckpointInterval", _duration_or_zero_ms, 60_000
    )
    journal_compression: str = _setting(
        "spark.penstock.journal.compression", _one_of(COMPRESSIONS), "none"
    )
    min_remember_duration_ms: int = _setting(
        "spark.streaming.fileStream.minRememberDuration",
        _seconds_ms,
        60_000,
        "spark.streaming.minRememberDuration",
    )
    stop_gracefully_on_shutdown: bool = _setting(
        "spark.streaming.stopGracefullyOnShutdown", _flag, False
    )
    unpersist: bool = _setting("spark.streaming.unpersist", _flag, True)
    ignore_missing_files: bool = _setting("spark.files.ignoreMissingFiles", _flag, False)
    journal_max_bytes: int | None = _setting("spark.penstock.journal.maxBytes", _size, None)
    journal_max_lag: int | None = _setting("spark.penstock.journal.maxLag", parse_positive, None)
    journal_when_full: WhenFull = _setting(  # noqa: RUF009 (it makes a field)
        "spark.penstock.journal.whenFull", _one_of(WHEN_FULL), "block"
    )
    on_batch_failure: OnBatchFailure = _setting(  # noqa: RUF009 (it makes a field)
        "spark.penstock.onBatchFailure", _one_of(ON_BATCH_FAILURE), "stop"
    )
    bad_values: BadValues = _setting(  # noqa: RUF009 (it makes a field)
        SINKS_BAD_VALUES, _one_of(BAD_VALUES), "fail"
    )
    write_ahead_log: bool | None = _setting(WRITE_AHEAD_LOG, _flag, None)
    rate: RateSettings = field(default_factory=RateSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    ui: UiSettings = field(default_factory=UiSettings)

    @staticmethod
    def from_conf(conf: Conf) -> StreamingSettings:
        """Read the settings from Spark's configuration.

        Raises:
            ConfigError: a value cannot be parsed or is out of range; names the setting.
        """
        settings = StreamingSettings(**_values(StreamingSettings, settings_of(conf)))
        return replace(
            settings,
            rate=RateSettings.from_conf(conf),
            metrics=MetricsSettings.from_conf(conf),
            ui=UiSettings.from_conf(conf),
        )


def check_exactly_once(output: str, settings: StreamingSettings) -> None:
    """Refuse settings with which an exactly-once output would never write a batch that failed.

    Raises:
        ConfigError: later batches may overtake it.
    """
    if settings.on_batch_failure == "continue":
        hint = "set spark.penstock.onBatchFailure to stop"
    elif settings.concurrent_jobs > 1:
        hint = "set spark.streaming.concurrentJobs to 1"
    else:
        return
    raise ConfigError(
        f"output {output!r} writes each batch exactly once by the newest batch id that its sink "
        "holds, so a failed batch would never be written once a later one is written",
        operation="start",
        hint=hint,
    )

"""Rate overrides of a running program: the highest rate of a stream, and whether it is paused.

    rate/<stream>.json      {"version": 1, "maxRate": 5000.0, "paused": false}

The files are in the checkpoint location. ``penstock rate`` and the program itself
(``StreamingContext.setMaxRate``) write them, and the driver reads them at each poll. The last
override applies, whoever wrote it, also across restarts. Without a file the program's own settings
apply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.errors import ConfigError, LogFormatError, NotFoundError
from penstock.model import check_name
from penstock.rate.estimator import positive
from penstock.storage import Storage

_VERSION = 1


@dataclass(frozen=True, slots=True)
class RateOverride:
    """The override of one stream.

    Raises:
        ConfigError: the rate is not a finite number above 0.
    """

    max_rate: float | None = None
    """Highest rate in records per second; None for the rate of the program's own settings."""
    paused: bool = False
    """Whether receiving and processing of the stream is paused."""

    def __post_init__(self) -> None:
        if self.max_rate is not None:
            positive("max_rate", self.max_rate)


class RateOverrides:
    """The rate overrides in a checkpoint location.

    Two processes that set an override of one stream at the same time overwrite each other: one of
    the two then applies.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, stream: str) -> RateOverride:
        """Return the effective override of a stream.

        Raises:
            LogFormatError: its file is damaged or has a newer version.
        """
        path = _path(stream)
        try:
            return _decode(self._storage.read(path))
        except NotFoundError:
            return RateOverride()
        except (ConfigError, KeyError, TypeError, ValueError) as e:
            raise LogFormatError(
                "the rate override of a stream cannot be read",
                operation="read rate override",
                path=self._storage.uri(path),
                ids={"stream": stream},
                hint="delete the file, and set the override again with `penstock rate`",
            ) from e

    def set(self, stream: str, override: RateOverride) -> None:
        """Set the override of a stream; raises StorageError if it cannot be written."""
        path = _path(stream)
        if override == RateOverride():
            self._storage.delete(path)
        else:
            values = {"version": _VERSION, "maxRate": override.max_rate, "paused": override.paused}
            self._storage.create(path, json.dumps(values).encode(), overwrite=True)


def _path(stream: str) -> str:
    return f"rate/{check_name('stream', stream)}.json"


def _decode(data: bytes) -> RateOverride:
    values = json.loads(data)
    if values["version"] != _VERSION:
        raise ValueError(f"version {values['version']!r}")
    max_rate, paused = values["maxRate"], values["paused"]
    if not isinstance(paused, bool):
        raise TypeError(f"paused is {paused!r}")
    return RateOverride(None if max_rate is None else float(max_rate), paused)

"""Orders to a running program: the highest rate of a stream, and whether it is paused.

    rate/<stream>.json      {"version": 1, "maxRate": 5000.0, "paused": false}

They are files in the checkpoint location, written by ``penstock rate`` and by the program itself
(``StreamingContext.setMaxRate``), and read by the driver at each poll. The last order counts,
whoever gave it, and stays in force over restarts. Without a file the program's own settings count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.errors import ConfigError, LogFormatError, NotFoundError
from penstock.model import check_name
from penstock.rate.checks import positive
from penstock.storage import Storage

__all__ = ["RateOrder", "RateOrders"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class RateOrder:
    """What is ordered for one stream.

    Raises:
        ConfigError: the rate is not a finite number above 0.
    """

    max_rate: float | None = None
    """Highest rate, records per second; None for that of the program's own settings."""
    paused: bool = False
    """Whether nothing of the stream is received and processed."""

    def __post_init__(self) -> None:
        if self.max_rate is not None:
            positive("max_rate", self.max_rate)


class RateOrders:
    """The orders in a checkpoint location.

    Two people who give orders for one stream in the same instant overwrite each other: one of the
    orders is then the one in force.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, stream: str) -> RateOrder:
        """Return the order in force for a stream.

        Raises:
            LogFormatError: its file is damaged or of a newer version.
        """
        path = _path(stream)
        try:
            return _decode(self._storage.read(path))
        except NotFoundError:
            return RateOrder()
        except (ConfigError, KeyError, TypeError, ValueError) as e:
            raise LogFormatError(
                "the order for a stream's rate cannot be read",
                operation="read rate order",
                path=self._storage.uri(path),
                ids={"stream": stream},
                hint="delete the file, and give the order again with `penstock rate`",
            ) from e

    def give(self, stream: str, order: RateOrder) -> None:
        """Put an order in force; raises StorageError when it cannot be written."""
        path = _path(stream)
        if order == RateOrder():
            self._storage.delete(path)
            return
        values = {"version": _VERSION, "maxRate": order.max_rate, "paused": order.paused}
        self._storage.create(path, json.dumps(values).encode(), overwrite=True)


def _path(stream: str) -> str:
    return f"rate/{check_name('stream', stream)}.json"


def _decode(data: bytes) -> RateOrder:
    values = json.loads(data)
    if values["version"] != _VERSION:
        raise ValueError(f"version {values['version']!r}")
    max_rate, paused = values["maxRate"], values["paused"]
    if not isinstance(paused, bool):
        raise TypeError(f"paused is {paused!r}")
    return RateOrder(None if max_rate is None else float(max_rate), paused)

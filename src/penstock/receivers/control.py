"""Control by files: what the driver orders a receiver to do, and what the receiver says of itself.

Both are small JSON files in the stream's ``control`` folder, overwritten in place: no port is
opened, and a receiver goes on while the driver is down. An order names the run it belongs to: a
receiver of an earlier run sees a foreign run there and stops.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.errors import LogFormatError, NotFoundError
from penstock.journal import JournalStream

__all__ = [
    "Order",
    "State",
    "Status",
    "control_folder",
    "read_order",
    "read_status",
    "receivers_with_status",
    "write_order",
    "write_status",
]

State = Literal["started", "restarting", "stopped"]
_STATUS = ".status.json"


@dataclass(frozen=True, slots=True)
class Order:
    """What the driver wants of a receiver."""

    run: str
    stop: bool = False
    rate: float | None = None
    """Records per second that it may store, None for no limit. Stays in force without a driver."""
    paused: bool = False
    """Whether it may store nothing."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a receiver last said of itself."""

    run: str
    writer: str
    state: State
    host: str
    pid: int
    changed_ms: int
    errors: int = 0
    """How many errors it reported in this run."""
    last_error: str | None = None
    listening_at: str | None = None
    """The URL at which it can be reached, where others connect to it."""


def control_folder(stream: JournalStream) -> str:
    """Return the folder of a stream's control files, within its storage."""
    return f"{stream.name}/control"


def receivers_with_status(stream: JournalStream) -> list[str]:
    """Return the receivers that said a status at some time."""
    listed = [entry.name for entry in stream.storage.list(control_folder(stream))]
    return [name.removesuffix(_STATUS) for name in listed if name.endswith(_STATUS)]


def write_order(stream: JournalStream, receiver: str, order: Order) -> None:
    """Make the order known to the receiver, at its next poll."""
    _write(stream, f"{receiver}.order.json", asdict(order))


def read_order(stream: JournalStream, receiver: str) -> Order | None:
    """Return the order in force, None when the driver has given none."""
    values = _read(stream, f"{receiver}.order.json")
    return None if values is None else Order(**values)


def write_status(stream: JournalStream, receiver: str, status: Status) -> None:
    """Make the receiver's status known to the driver."""
    _write(stream, f"{receiver}{_STATUS}", asdict(status))


def read_status(stream: JournalStream, receiver: str) -> Status | None:
    """Return the receiver's last status, None when it never said one."""
    values = _read(stream, f"{receiver}{_STATUS}")
    return None if values is None else Status(**values)


def _write(stream: JournalStream, name: str, values: dict[str, Any]) -> None:
    stream.storage.create(
        f"{control_folder(stream)}/{name}", json.dumps(values).encode(), overwrite=True
    )


def _read(stream: JournalStream, name: str) -> dict[str, Any] | None:
    path = f"{control_folder(stream)}/{name}"
    try:
        values: dict[str, Any] = json.loads(stream.storage.read(path))
    except NotFoundError:
        return None
    except ValueError as e:
        raise LogFormatError(
            "a control file is damaged",
            operation="read control file",
            path=stream.storage.uri(path),
            ids={"stream": stream.name},
            hint="delete it; driver and receiver write it anew when they start",
        ) from e
    return values

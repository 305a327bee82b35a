"""Control by files: the commands of runs to their receivers, and the status of receivers.

A run is one start of a driver, or one ingest process. Runs and receivers communicate through small
JSON files in the stream's ``control`` folder, so no port is opened, and a receiver continues while
the driver is down::

    <receiver>.<run>.command.json    what that run commands; only that run writes it
    <receiver>.status.json           what the receiver last said

Invariants, without a lock or a clock:

1. No run overwrites another's command: each has its own file. A receiver obeys only its run's file.
2. Runs are ordered by their names, and the newest run's file is never deleted. So a claim, which
   takes a number above all existing ones, is later than every claim that ended before it began.
3. A claim deletes the files of earlier runs *after* it wrote its own. A process that writes a
   command checks for a later run *after* that, and deletes its file if there is one. So if two runs
   write at the same time, at least one sees the other, and only the later one's file stays.
4. If a receiver's command is gone and a later run's command exists, it was superseded, and ends.

Readers ignore keys that they do not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar

from penstock.errors import FencedError, LogFormatError, NotFoundError
from penstock.journal import JournalStream

State = Literal["started", "restarting", "stopped"]
_STATUS = ".status.json"
_COMMAND = re.compile(r"(.+)\.([0-9]{20}-[0-9a-f]{32})\.command\.json")
_SILENT_MS = 120_000
"""Four times as long as receivers wait between two statuses."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Command:
    """A run's command to a receiver."""

    stop: bool = False
    rate: float | None = None
    """Records per second that it may store, None for no limit. Stays effective without a driver."""
    paused: bool = False
    """Whether storing is paused."""


@dataclass(frozen=True, slots=True)
class Status:
    """The last status of a receiver."""

    run: str
    writer: str
    state: State
    host: str
    pid: int
    changed_ms: int
    errors: int = 0
    """The number of errors that it reported in this run."""
    last_error: str | None = None
    listening_at: str | None = None
    """The URL at which it can be reached, if others connect to it."""
    max_bytes: int | None = None
    """The most bytes of blocks that it may hold uncommitted, None for no bound."""
    max_lag_records: int | None = None
    """The most records that it may hold and that some consumer has not committed."""
    refused: int = 0
    """The records that it sent back for its limits; their source brings them again."""
    publish_ms: float | None = None
    """How long its newest block took to become durable."""
    said_ms: int = 0
    """When it wrote this status, which it does at least twice a minute, ms since the epoch."""


def control_folder(stream: JournalStream) -> str:
    """Return the folder of a stream's control files, within its storage."""
    return f"{stream.name}/control"


def claim_run(stream: JournalStream, receiver: str, run_id: str, command: Command) -> str:
    """Take the receiver over from every earlier run; their receivers end at their next poll.

    Args:
        stream: the receiver's stream.
        receiver: its name.
        run_id: 32 hex digits, unique to the run.
        command: the command to the receiver under this run.

    Returns:
        The run, as the receiver's other control files name it.

    Raises:
        FencedError: another run claimed the receiver at the same time, and is the later one.
        StorageError: a step failed; the call can be repeated.
    """
    stream.storage.sweep(control_folder(stream))
    newest = newest_run(stream, receiver)
    number = 0 if newest is None else int(newest.partition("-")[0]) + 1
    run = f"{number:020d}-{run_id}"
    give_command(stream, receiver, run, command)
    for earlier in _runs(stream, receiver):
        if earlier < run:
            stream.storage.delete(_command_path(stream, receiver, earlier))
    return run


def give_command(stream: JournalStream, receiver: str, run: str, command: Command) -> None:
    """Make a run's command known to the receiver, at its next poll.

    Raises:
        FencedError: a later run took the receiver over; this one no longer commands it.
        StorageError: whether the receiver sees the command is unknown.
    """
    path = _command_path(stream, receiver, run)
    stream.storage.create(path, json.dumps(asdict(command)).encode(), overwrite=True)
    try:
        check_latest(stream, receiver, run)
    except FencedError:
        stream.storage.delete(path)
        raise


def check_latest(stream: JournalStream, receiver: str, run: str) -> None:
    """Raise FencedError when a later run took the receiver over.

    Raises:
        StorageError: it cannot be told.
    """
    newest = newest_run(stream, receiver)
    if newest is None or newest <= run:
        return
    raise FencedError(
        "a later run took this receiver over",
        operation="command receiver",
        path=stream.storage.uri(_command_path(stream, receiver, run)),
        ids={"stream": stream.name, "receiver": receiver, "run": run, "later": newest},
        hint="no acked record is lost; run one driver, or one ingest process with this name, at a "
        "time",
    )


def read_command(stream: JournalStream, receiver: str, run: str) -> Command | None:
    """Return a run's command, None if its file is gone or was never written.

    Raises:
        LogFormatError: the file is damaged.
        StorageError: it cannot be read now.
    """
    return _read(stream, _command_path(stream, receiver, run), Command)


def newest_run(stream: JournalStream, receiver: str) -> str | None:
    """Return the latest run that claimed the receiver, None when there was none."""
    return max(_runs(stream, receiver), default=None)


def commanded_receivers(stream: JournalStream) -> set[str]:
    """Return the receivers that some run has claimed."""
    return {receiver for receiver, _ in _commands(stream)}


def receivers_with_status(stream: JournalStream) -> list[str]:
    """Return the receivers that have written a status."""
    listed = [entry.name for entry in stream.storage.list(control_folder(stream))]
    return [name.removesuffix(_STATUS) for name in listed if name.endswith(_STATUS)]


def write_status(stream: JournalStream, receiver: str, status: Status) -> None:
    """Make the receiver's status known to the driver."""
    data = json.dumps(asdict(status)).encode()
    stream.storage.create(_status_path(stream, receiver), data, overwrite=True)


def read_status(stream: JournalStream, receiver: str) -> Status | None:
    """Return the receiver's last status, None if it never wrote one.

    Raises what read_command raises.
    """
    return _read(stream, _status_path(stream, receiver), Status)


def is_silent(status: Status, now_ms: int) -> bool:
    """Return whether a receiver that has not stopped wrote no status for two minutes.

    It was killed, hangs, or cannot reach the storage. The clocks of its host and of this one should
    agree to a minute.
    """
    last_ms = max(status.said_ms, status.changed_ms)
    return status.state != "stopped" and now_ms - last_ms > _SILENT_MS


def _runs(stream: JournalStream, receiver: str) -> list[str]:
    return [run for name, run in _commands(stream) if name == receiver]


def _commands(stream: JournalStream) -> list[tuple[str, str]]:
    """Return receiver and run of each command file."""
    listed = stream.storage.list(control_folder(stream))
    names = (_COMMAND.fullmatch(entry.name) for entry in listed)
    return [(name[1], name[2]) for name in names if name is not None]


def _command_path(stream: JournalStream, receiver: str, run: str) -> str:
    return f"{control_folder(stream)}/{receiver}.{run}.command.json"


def _status_path(stream: JournalStream, receiver: str) -> str:
    return f"{control_folder(stream)}/{receiver}{_STATUS}"


def _read(stream: JournalStream, path: str, kind: Callable[..., _T]) -> _T | None:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    try:
        values: dict[str, Any] = json.loads(stream.storage.read(path))
        return kind(**{key: value for key, value in values.items() if key in known})
    except NotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as e:
        raise LogFormatError(
            "a control file is damaged",
            operation="read control file",
            path=stream.storage.uri(path),
            ids={"stream": stream.name},
            hint="delete it; driver and receiver write it again when they start",
        ) from e

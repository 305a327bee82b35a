"""The loss log: ranges that are left out, because they cannot be read.

An operator chose so for a journal's stream. A Kafka input has one, too (penstock.kafka.losses).

    <stream>/losses/<writer>.<start>-<end>.json

Invariants:

1. An entry is created exclusively and never changed. Its name holds the range: readers only list.
2. An entry is created only for records that cannot be read (``skip`` checks it): none hides
   readable data.
3. Readers leave out exactly the ranges in the loss log, and log that they do, once a process.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from penstock.errors import LogFormatError
from penstock.model import OffsetRange
from penstock.storage import Storage

LOSSES_FOLDER = "losses"
"""In the stream's folder; does not exist until records are skipped."""

_log = logging.getLogger(__name__)
_NAME = re.compile(r"(?P<writer>.+)\.(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.json")
_said: set[tuple[str, str, OffsetRange]] = set()

Lost = Mapping[str, Sequence[OffsetRange]]
"""Writer -> its skipped ranges, ascending."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An entry of the loss log."""

    records: OffsetRange
    reason: str
    who: str
    host: str
    when: str
    """UTC, in ISO 8601."""


def source_folder(name: str) -> str:
    """Return what stands for a stream in the checkpoint location, for an input without a journal.

    Its loss log is there.
    """
    return f"sources/{name}"


def loss_now(records: OffsetRange, reason: str) -> Loss:
    """Return an entry of this process's user and host, and of now."""
    return Loss(
        records=records,
        reason=reason,
        who=_user(),
        host=socket.gethostname(),
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def create_loss(storage: Storage, stream: str, loss: Loss) -> None:
    """Add an entry to a stream's loss log.

    Raises:
        AlreadyExistsError: the range is in it.
        StorageError: it could not be written.
    """
    entry = {
        "writer": loss.records.partition,
        "start": loss.records.start_offset,
        "end": loss.records.end_offset,
        "records": loss.records.count,
        "reason": loss.reason,
        "who": loss.who,
        "host": loss.host,
        "when": loss.when,
    }
    path = loss_path(stream, loss.records)
    storage.create(path, json.dumps(entry, indent=2, ensure_ascii=False).encode())


def lost_ranges(storage: Storage, stream: str) -> Lost:
    """Return the skipped ranges of a stream; one listing."""
    lost: dict[str, list[OffsetRange]] = {}
    for records in _listed(storage, stream):
        lost.setdefault(records.partition, []).append(records)
    return {writer: sorted(ranges) for writer, ranges in lost.items()}


def read_losses(storage: Storage, stream: str) -> list[Loss]:
    """Return a stream's loss log, by writer and offset.

    Raises:
        LogFormatError: an entry cannot be read; readers leave its range out nevertheless.
    """
    return [
        _read(storage, loss_path(stream, records), records) for records in _listed(storage, stream)
    ]


def without_lost(ranges: Iterable[OffsetRange], lost: Lost) -> list[OffsetRange]:
    """Return the ranges without skipped records, in order."""
    left: list[OffsetRange] = []
    for wanted in ranges:
        at = wanted.start_offset
        for gap in lost.get(wanted.partition, ()):
            if gap.start_offset < wanted.end_offset and at < gap.end_offset:
                if at < gap.start_offset:
                    left.append(replace(wanted, start_offset=at, end_offset=gap.start_offset))
                at = gap.end_offset
        if at < wanted.end_offset:
            left.append(replace(wanted, start_offset=at))
    return left


def end_after_losses(writer: str, end_offset: int, lost: Lost) -> int:
    """Return the end of a writer at ``end_offset`` including the skipped records after it."""
    for gap in lost.get(writer, ()):
        if gap.start_offset <= end_offset < gap.end_offset:
            end_offset = gap.end_offset
    return end_offset


def say_left_out(storage: Storage, stream: str, wanted: OffsetRange, left: int) -> None:
    """Log, once in a process, that only ``left`` records of a range are read."""
    key = (storage.url, stream, wanted)
    if left == wanted.count or key in _said:
        return
    _said.add(key)
    _log.warning(
        "%d records of [%d, %d) of writer %s of stream %s were skipped and are left out; "
        "see `penstock journal losses`",
        wanted.count - left,
        wanted.start_offset,
        wanted.end_offset,
        wanted.partition,
        stream,
    )


def skip_command(storage: Storage, stream: str, records: OffsetRange) -> str:
    """Return the command that skips records."""
    what = f"{records.partition}:{records.start_offset}-{records.end_offset}"
    return f"penstock journal skip {shlex.quote(storage.url)} {stream} {what} --reason TEXT"


def skip_commands(storage: Storage, stream: str, ranges: Iterable[OffsetRange]) -> str:
    """Return the commands that skip ranges, for a hint."""
    return " and ".join(f"`{skip_command(storage, stream, each)}`" for each in ranges)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have no name
        return str(os.getuid())


def _listed(storage: Storage, stream: str) -> Iterator[OffsetRange]:
    for entry in storage.list(f"{stream}/{LOSSES_FOLDER}"):
        if match := _NAME.fullmatch(entry.name):
            yield OffsetRange(match["writer"], int(match["start"]), int(match["end"]))


def _read(storage: Storage, path: str, records: OffsetRange) -> Loss:
    try:
        entry = json.loads(storage.read(path))
        return Loss(records, *(str(entry[key]) for key in ("reason", "who", "host", "when")))
    except (ValueError, KeyError, TypeError) as e:
        raise LogFormatError(
            "an entry of the loss log cannot be read",
            operation="read losses",
            path=storage.uri(path),
            hint="its name has the range, which is left out nevertheless; restore the file from "
            "a copy to know why",
        ) from e


def loss_path(stream: str, records: OffsetRange) -> str:
    """Return the path of the entry that holds a range."""
    span = f"{records.start_offset:020d}-{records.end_offset:020d}"
    return f"{stream}/{LOSSES_FOLDER}/{records.partition}.{span}.json"

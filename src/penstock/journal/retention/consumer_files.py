"""The format of the files of a stream's consumers.

    consumers/<name>.json            a consumer: its committed offsets, and the blocks it may delete
    consumers/<name>.<run>.claim     claim of a reader that took the consumer over (``claims``)
    consumers/<16 hex>.retiring      announcement of a deletion by a process that is not a consumer

Each is replaced as a whole, by one owner. See docs/journal-format.md.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import LogFormatError, NotFoundError
from penstock.journal.layout import (
    consumer_path,
    consumers_folder,
    notice_path,
    parse_consumer,
)
from penstock.journal.retention.claims import check_last
from penstock.journal.retention.recent_ends import RecentEnds
from penstock.journal.stream import JournalStream
from penstock.model import Offsets
from penstock.storage import Entry


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a consumer. Informative only."""

    location: str
    """Its checkpoint location."""
    host: str
    pid: int
    """The process that last wrote the consumer's file, on that host."""
    committed_ms: int | None = field(default=None, compare=False)
    """When it last committed something new, ms since the epoch; None before the first time."""

    @staticmethod
    def of_this_process(location: str, *, commits: bool = False) -> Program:
        """Return the entry of this process."""
        now_ms = time.time_ns() // 1_000_000 if commits else None
        return Program(location, socket.gethostname(), os.getpid(), now_ms)


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """The content of a consumer's file. Plain readers write the offsets only."""

    offsets: Offsets
    """Its committed offsets: its next batches need no records before these."""
    owner: str | None = None
    """The owner of the name."""
    begin: Offsets | None = None
    """The offsets at which it began, once known."""
    retiring: Offsets = field(default_factory=dict)
    """The offsets up to which it may be deleting blocks; see
    penstock.journal.retention.retirement."""
    kind: str | None = None
    """The kind of the records that it reads; see RecordFormat."""
    retained: Offsets | None = None
    """The offsets from which it retains blocks for reprocessing; None for ``offsets``. Never more
    than ``offsets``."""
    swept: Mapping[str, int] = field(default_factory=dict)
    """Receiver -> epoch. The epochs before it are sealed, and only their seals are left."""
    program: Program | None = None
    run: str | None = None
    """The reader that wrote it, where readers follow one another unannounced; one that finds
    another's is superseded."""
    recent: RecentEnds | None = None
    """The ends of its recent batches, if ``retained`` follows from them."""

    @property
    def held(self) -> tuple[Offsets, ...]:
        """The offsets from which on it holds blocks back."""
        return (self.offsets,) if self.retained is None else (self.offsets, self.retained)


def commit_consumer(stream: JournalStream, consumer: str, offsets: Offsets) -> None:
    """Record that a consumer is done with all records before ``offsets``; also registers it.

    Blocks that a *new* consumer finds then may still be deleted by a retirement that began before.
    A consumer that begins while others run uses ``register_consumer``, which returns where to
    begin.
    """
    write_consumer(stream, consumer, ConsumerEntry(offsets))


def consumer_names(stream: JournalStream) -> list[str]:
    """Return the registered consumers by the names of the files, including unreadable ones."""
    return _named([file.name for file in _list(stream)])


def consumers(stream: JournalStream) -> dict[str, Offsets]:
    """Return every registered consumer's committed offsets.

    Raises:
        LogFormatError: a consumer's file is damaged; nothing may be retired until it is fixed.
    """
    return {name: entry.offsets for name, entry in read_consumers(stream).items()}


def read_consumers(
    stream: JournalStream, own: Mapping[str, ConsumerEntry] | None = None
) -> dict[str, ConsumerEntry]:
    """Return every registered consumer's entry.

    ``own`` holds the entries that the caller has written: those files are not read, if they exist.

    Raises:
        ConcurrentDriverError: a later reader has taken one of ``own`` over.
        LogFormatError: a consumer's file is damaged.
    """
    known = own or {}
    files = [file.name for file in _list(stream)]
    for name, entry in known.items():
        check_last(stream, name, entry.run, files)
    entries = (
        (name, known[name] if name in known else read_consumer(stream, name))
        for name in _named(files)
    )
    return {name: entry for name, entry in entries if entry is not None}  # None: removed meanwhile


def held_offsets(entries: Iterable[ConsumerEntry]) -> list[Offsets]:
    """Return all offsets from which on consumers hold blocks back."""
    return [offsets for entry in entries for offsets in entry.held]


def swept_epochs(entries: Mapping[str, ConsumerEntry]) -> dict[str, int]:
    """Return, by receiver, the epoch before which only seals are left."""
    swept: dict[str, int] = {}
    for entry in entries.values():
        for receiver, epoch in entry.swept.items():
            swept[receiver] = max(epoch, swept.get(receiver, 0))
    return swept


def create_consumer(stream: JournalStream, consumer: str, entry: ConsumerEntry) -> None:
    """Take a name; raises AlreadyExistsError if it is taken."""
    stream.storage.create(consumer_path(stream.name, consumer), _encode(entry))


def write_consumer(stream: JournalStream, consumer: str, entry: ConsumerEntry) -> None:
    """Replace the consumer's entry, if any."""
    stream.storage.create(consumer_path(stream.name, consumer), _encode(entry), overwrite=True)


def read_consumer(stream: JournalStream, consumer: str) -> ConsumerEntry | None:
    """Return a consumer's entry, None if it is not registered.

    Raises:
        LogFormatError: its file is damaged.
    """
    path = consumer_path(stream.name, consumer)
    try:
        return _decode(stream.storage.read(path))
    except NotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise LogFormatError(
            "a consumer's file cannot be read",
            operation="read consumer",
            path=stream.storage.uri(path),
            ids={"stream": stream.name, "consumer": consumer},
            hint="delete the file if the consumer never comes back; otherwise delete it while "
            "the stream's other consumers are stopped, and start this one first: until then "
            "nothing holds back the blocks that it needs",
        ) from e


def publish_notice(stream: JournalStream, retiring: Offsets) -> str:
    """Announce the offsets up to which blocks may be deleted, in a new file; return its name."""
    name = secrets.token_hex(8)
    stream.storage.create(notice_path(stream.name, name), _to_json({"retiring": retiring}))
    return name


def read_notices(stream: JournalStream) -> dict[str, Offsets]:
    """Return the announcements of processes that are not consumers, by name.

    Raises:
        LogFormatError: one is damaged.
    """
    found: dict[str, Offsets] = {}
    for file in _list(stream):
        name, dot, suffix = file.name.rpartition(".")
        if not dot or suffix != "retiring":
            continue
        path = notice_path(stream.name, name)
        try:
            found[name] = _offsets(json.loads(stream.storage.read(path))["retiring"])
        except NotFoundError:  # that retirement is over
            continue
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise LogFormatError(
                "the announcement of a retirement cannot be read",
                operation="read announcement",
                path=stream.storage.uri(path),
                ids={"stream": stream.name},
                hint="delete the file when no process is retiring blocks of the stream",
            ) from e
    return found


def remove_notice(stream: JournalStream, name: str) -> None:
    """Remove an announcement: none of its blocks will be deleted any more."""
    stream.storage.delete(notice_path(stream.name, name))


def retiring_offsets(stream: JournalStream) -> dict[str, int]:
    """Return the offsets up to which blocks may be being deleted now, by writer.

    Raises:
        LogFormatError: a consumer's file, or an announcement, is damaged.
    """
    announced = [entry.retiring for entry in read_consumers(stream).values()]
    furthest: dict[str, int] = {}
    for retiring in [*announced, *read_notices(stream).values()]:
        for writer, end in retiring.items():
            furthest[writer] = max(end, furthest.get(writer, 0))
    return furthest


def _named(files: Iterable[str]) -> list[str]:
    return [name for name in map(parse_consumer, files) if name is not None]


def _list(stream: JournalStream) -> Sequence[Entry]:
    return stream.storage.list(consumers_folder(stream.name))


def _encode(entry: ConsumerEntry) -> bytes:
    fields: dict[str, Any] = {"offsets": dict(entry.offsets)}
    if entry.owner is not None:
        fields["owner"] = entry.owner
    if entry.begin is not None:
        fields["begin"] = dict(entry.begin)
    if entry.kind is not None:
        fields["kind"] = entry.kind
    if entry.retiring:
        fields["retiring"] = dict(entry.retiring)
    if entry.retained is not None:
        fields["retained"] = dict(entry.retained)
    if entry.swept:
        fields["swept"] = dict(entry.swept)
    if entry.program is not None:
        fields["program"] = asdict(entry.program)
    if entry.run is not None:
        fields["run"] = entry.run
    if entry.recent is not None:
        marks = [[number, dict(end)] for number, end in entry.recent.marks]
        fields["recent"] = {"batches": entry.recent.count, "ends": marks}
    return _to_json(fields)


def _to_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> ConsumerEntry:
    fields = json.loads(data)
    owner, kind, run = fields.get("owner"), fields.get("kind"), fields.get("run")
    return ConsumerEntry(
        _offsets(fields["offsets"]),
        None if owner is None else str(owner),
        _maybe_offsets(fields.get("begin")),
        _offsets(fields.get("retiring", {})),
        None if kind is None else str(kind),
        _maybe_offsets(fields.get("retained")),
        _offsets(fields.get("swept", {})),
        _program(fields.get("program")),
        None if run is None else str(run),
        _recent(fields.get("recent")),
    )


def _recent(found: Any) -> RecentEnds | None:
    if found is None:
        return None
    marks = tuple((int(number), _offsets(end)) for number, end in found["ends"])
    if not marks:
        raise ValueError("recent ends without an end")
    return RecentEnds(int(found["batches"]), marks)


def _program(found: Any) -> Program | None:
    """Return what is told of a program, None where that is nothing sound: it informs people."""
    try:
        committed_ms = found.get("committed_ms")
        return Program(
            str(found["location"]),
            str(found["host"]),
            int(found["pid"]),
            None if committed_ms is None else int(committed_ms),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _maybe_offsets(found: Any) -> dict[str, int] | None:
    return None if found is None else _offsets(found)


def _offsets(found: Any) -> dict[str, int]:
    return {str(writer): int(end) for writer, end in found.items()}

"""A registered consumer: it holds blocks back from before its first batch on.

Invariants:

1. A consumer is registered, holding back everything, before it looks where it begins. So what it
   finds there stays until it commits past it.
2. Where it began is durable before it takes anything, and never changes: a first batch that runs
   again, after whatever crash, takes the same records.
3. A name belongs to one owner. A second one is refused, as each would give free what the other has
   yet to read.

A crash between the steps leaves a consumer that holds back everything, which the next call of its
owner goes on with. See docs/journal-format.md for the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import AlreadyExistsError, ConfigError, LogFormatError, NotFoundError
from penstock.journal.layout import WriterId, consumer_path
from penstock.journal.offsets import WriterEnd, begin_at
from penstock.journal.progress import StreamProgress
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

__all__ = ["Consumer", "StartingOffsets", "register_consumer"]

StartingOffsets = Literal["earliest", "latest"]
"""Where a new consumer begins: at the oldest blocks that are held, or after all that is durable."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A registration in force."""

    stream: JournalStream
    name: str
    owner: str
    begin: Offsets
    """The offsets at which it began; writers that are not in it begin at 0."""

    def commit(self, offsets: Offsets) -> None:
        """Record that it needs no records before ``offsets`` any more."""
        _write(self.stream, self.name, _Entry(offsets, self.owner, self.begin))


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a consumer's file says. Plain readers leave owner and begin out."""

    offsets: Offsets
    owner: str | None = None
    begin: Offsets | None = None


def register_consumer(
    stream: JournalStream,
    name: str,
    owner: str,
    *,
    starting: StartingOffsets = "earliest",
    begun: bool = False,
    take_over: bool = False,
) -> Consumer:
    """Register a consumer, or return it as it was registered by the same owner before.

    Args:
        stream: what it reads.
        name: its name.
        owner: who it is, over restarts.
        starting: where it begins when it is new.
        begun: whether it has taken records before; then it is not sent to another place, also
            when its registration is gone.
        take_over: whether a registration of that name is its own, whoever the owner was.

    Raises:
        ConfigError: another owner has that name.
        LogFormatError: the consumer's file is damaged.
        StorageError: the journal cannot be reached; the call can be repeated.
    """
    entry = _read(stream, name) or _claim(stream, name, owner)
    if entry.owner != owner and not take_over:
        raise ConfigError(
            f"consumer {name!r} of the stream belongs to somebody else",
            operation="register consumer",
            path=stream.storage.uri(consumer_path(stream.name, name)),
            ids={"stream": stream.name, "consumer": name},
            hint="choose another name (consumer=); if that consumer is gone for good, "
            f"run `penstock journal consumers rm {stream.storage.url} {stream.name} {name}`",
        )
    if entry.begin is not None and entry.owner == owner:
        return Consumer(stream, name, owner, entry.begin)
    if begun:  # by an earlier release, or its registration was removed
        begin: Offsets = {}
        _write(stream, name, _Entry(entry.offsets, owner, begin))
    else:
        begin = _earliest(stream) if starting == "earliest" else _latest(stream)
        _write(stream, name, _Entry(begin, owner, begin))
    return Consumer(stream, name, owner, begin)


def _earliest(stream: JournalStream) -> dict[str, int]:
    ends = StreamProgress(stream).ends({})
    blocks = {writer: stream.blocks(writer) for writer in ends}
    return begin_at({w: held[0].start_offset for w, held in blocks.items() if held}, ends)


def _latest(stream: JournalStream) -> dict[str, int]:
    ends: Mapping[WriterId, WriterEnd] = StreamProgress(stream).ends({})
    return begin_at({writer: end.end_offset for writer, end in ends.items()}, ends)


def _claim(stream: JournalStream, name: str, owner: str) -> _Entry:
    """Take a name that is free, holding back everything; return what stands there then."""
    entry = _Entry({}, owner)
    try:
        stream.storage.create(consumer_path(stream.name, name), _encode(entry))
    except AlreadyExistsError:
        return _read(stream, name) or _claim(stream, name, owner)  # None: it was removed since
    return entry


def _write(stream: JournalStream, name: str, entry: _Entry) -> None:
    stream.storage.create(consumer_path(stream.name, name), _encode(entry), overwrite=True)


def _read(stream: JournalStream, name: str) -> _Entry | None:
    path = consumer_path(stream.name, name)
    try:
        return _decode(stream.storage.read(path))
    except NotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise LogFormatError(
            "a consumer's registration cannot be read",
            operation="register consumer",
            path=stream.storage.uri(path),
            ids={"stream": stream.name, "consumer": name},
            hint="delete the file; a consumer that had begun goes on, and holds back everything "
            "until it commits",
        ) from e


def _encode(entry: _Entry) -> bytes:
    fields: dict[str, Any] = {"offsets": dict(entry.offsets)}
    if entry.owner is not None:
        fields["owner"] = entry.owner
    if entry.begin is not None:
        fields["begin"] = dict(entry.begin)
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> _Entry:
    fields = json.loads(data)
    owner, begin = fields.get("owner"), fields.get("begin")
    return _Entry(
        _offsets(fields["offsets"]),
        None if owner is None else str(owner),
        None if begin is None else _offsets(begin),
    )


def _offsets(found: Any) -> dict[str, int]:
    return {str(writer): int(end) for writer, end in found.items()}

"""Ownership: which receiver of a stream may publish which part of a source, and from where.

Several receivers share a source that has parts, such as the partitions of Kafka topics. Parts move
between them while all of them run, and none of them knows for certain which others do.

    <stream>/receivers/_parts/<number>.json

    {"version": 1, "parts": {"clicks/0":
        {"writer": "r0-00000003", "start": 246189, "since": 4, "origin": "kGl1ZW50LWNsaWNrcy0wMQ"}}}

An entry tells each part's owner (null for none), where its records begin in the source, the number
of the entry that gave it to this owner, and of what the part is (null if that is not known): a
source that was replaced under its name has other records in the same places. A block's position
tells how far its writer is:

    {"version": 1, "parts": {"clicks/0": [4, 246201]}}

Invariants:

1. Entries are numbered, created exclusively, and never changed; the newest one counts. So the log
   is one value that changes by compare-and-set.
2. A writer publishes records of a part only while an entry names it as the owner, only those from
   ``start`` on, in order and without a gap. The position of each of its blocks, and so of its seal,
   tells the end of what it published of each part, with the number of the entry that gave it the
   part. An end under another number belongs to an earlier ownership and says nothing.
3. A part is given to another writer only when the owner can publish no more of it: the owner is
   sealed (penstock.journal.epochs), or it released the part itself, after a flush. So the end is
   final when the new entry is created, and is its ``start``; only an operator may choose another
   one (``move_parts``), and only after that a part may be of another origin.
4. Old entries are deleted, so their names become available again. Whoever has created an entry
   lists the log again: if there is a later entry, that one is read and decides.
5. The position of a block tells of each part that the writer owns by the log. A start that failed
   leaves parts which the next start of the same writer does not know; its first claim, before any
   block, releases them where the last position has them.

So the ranges of a part that owners publish, one after the other, meet: each record is in the
journal exactly once. No clock, lease or coordinator of a group has a part in this. They choose who
claims; a receiver that slept may claim too late, but cannot publish late: it is sealed. A claim
that seals a receiver which is alive costs that one a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import AlreadyExistsError, LogFormatError, NotFoundError, ReceiverError
from penstock.journal import JournalStream
from penstock.journal.epochs import seal_writer
from penstock.journal.layout import WriterId, parse_writer

__all__ = ["Ownership", "ReplacedSourceError", "Share", "end_of", "move_parts", "read_shares"]

_VERSION = 1
_KEPT = 8
_SUFFIX = ".json"
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the source in an entry of the log."""

    writer: str | None
    """Its owner; None when it was released."""
    start: int
    """Where the owner began, or the next one begins."""
    since: int
    """The entry that gave it to this owner."""
    origin: str | None = None
    """Of what it is a part: a source that replaces it has another one; None if not known."""


class ReplacedSourceError(ReceiverError):
    """A part is of another source than the one that the log tells of."""


Shares = Mapping[str, Share]


class Ownership:
    """The parts of one writer. Not thread-safe.

    Args:
        stream: the stream of the journal that the writer writes.
        writer: whose parts they are.
        position: returns the writer's last durable position; asked for after a flush only.
    """

    def __init__(
        self, stream: JournalStream, writer: WriterId, position: Callable[[], Any]
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._position = position
        self._since: dict[str, int] = {}

    def claim(
        self,
        parts: Iterable[str],
        starts: Callable[[bool], Mapping[str, int]],
        origin: Callable[[str], str | None] = lambda _: None,
    ) -> dict[str, int]:
        """Become the owner of parts; return where each of them begins.

        All that this writer stored before must be durable. Where it begins is durable when this
        returns. What an earlier start of this writer left without a release, because it failed, is
        released with it (invariant 5).

        Args:
            parts: their names.
            starts: returns where parts begin that the log does not know; asked only if needed. It
                is given whether there is no log yet: then all parts that exist begin now, those of
                other receivers too, and all that come later are new.
            origin: returns of what a part is now; None if that is not known.

        Raises:
            ReplacedSourceError: a part is of another origin than by the log.
            StorageError: a step failed; the call can be repeated.
            DamagedBlockError: the newest block of an owner is damaged, so its end is unknown.
            LogFormatError: an entry is damaged, or of a newer version.
        """
        wanted = list(parts)
        while True:
            number, known = read_log(self._stream)
            if number < 0 or not known.keys() >= set(wanted):
                begun = {
                    part: Share(None, start, number + 1, origin(part))
                    for part, start in starts(number < 0).items()
                    if part not in known
                }
                _check_begun(wanted, {*known, *begun})
                known = {**known, **begun}
            origins = {part: origin(part) or known[part].origin for part in wanted}
            _check_origins(known, origins)
            left = {part: share for part, share in known.items() if self._is_left(part, share)}
            ends = self._ends({**left, **{part: known[part] for part in wanted}})
            shares = {
                part: Share(None, end, number + 1, known[part].origin) for part, end in ends.items()
            }
            for part, of_it in origins.items():
                shares[part] = Share(self._id, ends[part], number + 1, of_it)
            if _append(self._stream, number + 1, {**known, **shares}):
                self._since |= dict.fromkeys(wanted, number + 1)
                return {part: ends[part] for part in wanted}

    def release(self, parts: Iterable[str], ends: Mapping[str, int] | None = None) -> None:
        """Give parts back; all that was stored of them must be durable, and nothing may follow.

        Parts that another writer owns by now are left alone. Raises as ``claim``.

        Args:
            parts: their names.
            ends: where to begin next, of parts that have no records between the last one that was
                stored and there.
        """
        sinces = {part: self._since.pop(part) for part in parts if part in self._since}
        self._settle(sinces, ends or {}, None)

    def settle(self, ends: Mapping[str, int]) -> None:
        """Make durable that owned parts have no records between the last one stored and these ends.

        All that was stored of them must be durable. After an error the receiver has to start again.
        Raises as ``claim``.
        """
        sinces = {part: self._since[part] for part in ends}
        self._since |= self._settle(sinces, ends, self._id)

    def _settle(
        self, sinces: Mapping[str, int], ends: Mapping[str, int], owner: str | None
    ) -> dict[str, int]:
        """Begin an ownership of parts that are still owned since then; return since when it is."""
        while True:
            number, known = read_log(self._stream)
            held = {
                part: known[part]
                for part, since in sinces.items()
                if part in known and (known[part].writer, known[part].since) == (self._id, since)
            }
            shares = {
                part: Share(owner, ends.get(part, end), number + 1, held[part].origin)
                for part, end in self._ends(held).items()
            }
            if not shares or _append(self._stream, number + 1, {**known, **shares}):
                return dict.fromkeys(shares, number + 1)

    def without_owner(self, parts: Iterable[str]) -> list[str]:
        """Return those that no writer of the stream owns; raises as ``read_shares``."""
        known = read_shares(self._stream)
        return [part for part in parts if part not in known or known[part].writer is None]

    def position(self, ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the position of a store, given the end of each owned part."""
        parts = {part: [self._since[part], end] for part, end in ends.items()}
        return {"version": _VERSION, "parts": parts}

    def _is_left(self, part: str, share: Share) -> bool:
        """Whether this writer owns a part, and its positions do not tell of it any more."""
        return share.writer == self._id and share.since != self._since.get(part)

    @property
    def _id(self) -> str:
        return str(self._writer)

    def _ends(self, shares: Shares) -> dict[str, int]:
        """Return the final ends of parts, after sealing their owners."""
        owners = {share.writer for share in shares.values()}
        positions = {owner: self._final_position(owner) for owner in owners}
        return {
            part: end_of(part, share, positions[share.writer]) for part, share in shares.items()
        }

    def _final_position(self, writer: str | None) -> Any:
        if writer is None:
            return None
        if writer == self._id:
            return self._position()
        return seal_writer(self._stream, _writer_id(self._stream, writer))


def move_parts(
    stream: JournalStream,
    parts: Iterable[str],
    choose: Callable[[dict[str, int]], Mapping[str, tuple[int, str | None]]],
) -> None:
    """Let parts begin elsewhere, for an operator: their owners are sealed, and have to claim anew.

    Args:
        stream: the stream of the journal.
        parts: their names.
        choose: given where the records of each end for good, returns where those begin that move,
            and of what they are a part. It may be called again.

    Raises as ``Ownership.claim``, and:
        ReceiverError: the log does not have one of the parts.
    """
    wanted = list(parts)
    while True:
        number, known = read_log(stream)
        _check_begun(wanted, known)
        owners = {str(known[part].writer) for part in wanted if known[part].writer is not None}
        final = {owner: seal_writer(stream, _writer_id(stream, owner)) for owner in owners}
        starts = choose(
            {part: end_of(part, known[part], final.get(str(known[part].writer))) for part in wanted}
        )
        moved = {part: Share(None, start, number + 1, of) for part, (start, of) in starts.items()}
        if not moved or _append(stream, number + 1, {**known, **moved}):
            return


def read_shares(stream: JournalStream) -> dict[str, Share]:
    """Return what the newest entry of a stream's log tells; nothing without a log.

    Raises:
        StorageError: it cannot be read.
        LogFormatError: it is damaged, or of a newer version.
    """
    return read_log(stream)[1]


def end_of(part: str, share: Share, position: Any) -> int:
    """Return how far a part is published, by the last position of its owner. Pure.

    Raises:
        ReceiverError: the position was stored by another kind of receiver, or by a newer version.
    """
    if share.writer is None or position is None:
        return share.start
    try:
        if position["version"] != _VERSION:
            raise ValueError(f"version {position['version']!r}")
        since, end = position["parts"].get(part, (None, 0))
        return int(end) if since == share.since else share.start
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReceiverError(
            "the stored position is not one of a receiver that shares its source",
            operation="claim parts of source",
            ids={"part": part, "writer": share.writer, "position": repr(position)[:200]},
            hint="give these receivers a stream of their own, or upgrade penstock",
        ) from error


def read_log(stream: JournalStream) -> tuple[int, dict[str, Share]]:
    """Return the number of the newest entry, -1 without one, and what it tells.

    Raises as ``read_shares``.
    """
    while (number := max(_numbers(stream), default=-1)) >= 0:
        path = _path(stream, number)
        try:
            return number, _decode(stream.storage.read(path), stream.storage.uri(path))
        except NotFoundError:
            continue  # deleted since it was listed: later ones exist
    return -1, {}


def _append(stream: JournalStream, number: int, shares: Shares) -> bool:
    """Create an entry; return whether it is the newest."""
    parts = {part: asdict(share) for part, share in sorted(shares.items())}
    data = json.dumps({"version": _VERSION, "parts": parts}).encode()
    try:
        stream.storage.create(_path(stream, number), data)
    except AlreadyExistsError:
        return False
    numbers = _numbers(stream)
    if old := [_path(stream, each) for each in numbers if each <= number - _KEPT]:
        stream.storage.delete_all(old)
    return max(numbers) == number


def _numbers(stream: JournalStream) -> list[int]:
    names = stream.storage.names(_folder(stream))
    digits = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return [int(each) for each in digits if len(each) == _DIGITS and each.isdecimal()]


def _folder(stream: JournalStream) -> str:
    return f"{stream.name}/receivers/_parts"  # no receiver's name begins with "_"


def _path(stream: JournalStream, number: int) -> str:
    return f"{_folder(stream)}/{number:0{_DIGITS}d}{_SUFFIX}"


def _decode(data: bytes, uri: str) -> dict[str, Share]:
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']!r}")
        return {str(part): _share(share) for part, share in fields["parts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogFormatError(
            f"an entry of the ownership log is damaged, or of a newer version ({error!r})",
            operation="claim parts of source",
            path=uri,
            hint="restore it from a copy, or upgrade penstock; the entry before it is out of date",
        ) from error


def _share(fields: Mapping[str, Any]) -> Share:
    writer = fields["writer"]
    owner, origin = (None if name is None else str(name) for name in (writer, fields.get("origin")))
    return Share(owner, int(fields["start"]), int(fields["since"]), origin)


def _writer_id(stream: JournalStream, name: str) -> WriterId:
    found = parse_writer(name)
    if found is None:
        raise LogFormatError(
            f"the ownership log names {name!r}, which is not a writer",
            operation="claim parts of source",
            path=stream.storage.uri(_folder(stream)),
            hint="restore its newest entry from a copy",
        )
    return found


def _check_begun(wanted: Iterable[str], known: Iterable[str]) -> None:
    if missing := sorted({*wanted}.difference(known)):
        raise ReceiverError(
            f"it is not known where {', '.join(missing)} begins: the source does not list it yet",
            operation="claim parts of source",
            hint="nothing to do: the receiver starts again",
        )


def _check_origins(known: Shares, origins: Mapping[str, str | None]) -> None:
    replaced = [part for part, now in origins.items() if known[part].origin not in (None, now)]
    if replaced:
        raise ReplacedSourceError(
            "the source was replaced by another one of its name",
            operation="claim parts of source",
            ids={"parts": ", ".join(sorted(replaced))},
            hint="have an operator choose where to begin in the new one",
        )

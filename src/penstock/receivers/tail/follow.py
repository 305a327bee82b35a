"""Decisions about a followed file: marks, the facts of one scan of the disk, and the actions.

No I/O. A *mark* holds how far one file is stored; the position in the block with the records has
all marks (see ``positions``). After a kill nothing else is known, so every decision must follow
from the marks and the current state of the disk.

Invariants:

1. A file is known by its content: the bytes before the mark's offset must be the stored ones, and
   their fingerprint grows with the file. So a reused inode or a rewritten file starts again at 0
   instead of continuing in the middle.
2. The inode says where to look for that content, as names do not: they move when logs rotate. The
   number of the device is no part of a position: volumes get another one when they are attached
   again. It tells files apart while a process runs; a stored mark gets that of its file first.
3. Content that left its name is searched for before it is abandoned: a renamed file by its inode, a
   copied one (copytruncate) by its fingerprint.
4. A mark is dropped only when its file is gone, when the file could not be mistaken for a new one
   later (see ``superseded``), or when no pattern asks for it any more. So marks do not pile up, and
   no file is read twice. If bytes may be left that were not read, that is reported.
5. The marks of one path stand in the order of age; the last one is the file that had the name when
   it was last scanned.

Prior art: GNU ``tail -F``, Fluentd's ``in_tail`` (rotate_wait), Filebeat's inode and fingerprint
file identities.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

FINGERPRINT_BYTES = 256


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """What to follow and how; the meaning of each is TailReceiver's."""

    patterns: tuple[str, ...]
    from_beginning: bool
    rotate_wait_ms: int
    max_line_bytes: int


NO_DEVICE = -1


class FileId(NamedTuple):
    """What a file keeps when it is renamed; unique among the files that exist at one time.

    The device is NO_DEVICE in a stored mark of which the file was not found yet.
    """

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one file is stored.

    Attributes:
        path: the path under which it is, or was, followed.
        file_id: device and inode.
        offset: bytes stored; a line begins here.
        crc: fingerprint of the bytes before ``offset``.
        mtime_ns: when it had been written to last, at the scan before its last read.
        name: the path by which a pattern names it, where links lead from there to ``path``.
        is_whole: whether it had been read to its end, and left alone, after it lost its name.
    """

    path: str
    file_id: FileId
    offset: int
    crc: int
    mtime_ns: int
    name: str = ""
    is_whole: bool = False


class Glance(NamedTuple):
    """The facts of a file in a scan.

    While nothing of a file is stored, no fingerprint tells whether its content is still the one for
    which rotated copies were searched for. So it is read only if the content begins as at the scan.
    """

    mtime_ns: int
    size: int = 0
    crc: int = 0
    """Fingerprint of all that was there."""


def fingerprint(head: bytes, tail: bytes) -> int:
    """Return the CRC of the first and last FINGERPRINT_BYTES before an offset.

    The first bytes alone would not tell apart files that begin with the same banner.
    """
    return zlib.crc32(tail, zlib.crc32(head))


class Place(Enum):
    """Where the file of a mark is now."""

    FOLLOWED = "its inode has a path that is followed"
    RENAMED = "its inode has another name"
    UNLINKED = "it has no name any more, but we hold it open"
    MISSING = "there is no such inode where it could be"


class Action(Enum):
    """What to do with the file of a mark."""

    CONTINUE = "read on from the mark"
    START_OVER = "the content was replaced: read the file from 0"
    FINISH = "read on from the mark while newer files take over the name"
    DRAIN = "read to the end, then drop"
    DROP = "drop"


class Decision(NamedTuple):
    """What to do with the file of a mark, and with the content that the mark speaks of."""

    action: Action
    finish_copy: bool = False
    content_lost: bool = False


def decide(place: Place, *, intact: bool, copied: bool) -> Decision:
    """Decide on one mark.

    Args:
        place: where its file is.
        intact: whether the bytes before the mark's offset are still those that were stored.
        copied: whether a rotated copy holds those bytes; searched for if they are not intact.
    """
    if intact and place is not Place.MISSING:
        return Decision(
            {
                Place.FOLLOWED: Action.CONTINUE,
                Place.RENAMED: Action.FINISH,
                Place.UNLINKED: Action.DRAIN,
            }[place]
        )
    action = Action.START_OVER if place is Place.FOLLOWED else Action.DROP
    return Decision(action, finish_copy=copied, content_lost=not copied)


class Start(Enum):
    """Where to begin with a file that no mark knows."""

    BEGINNING = "at 0"
    END = "after its last line end"


def decide_new(*, resumed: bool, first_scan: bool, from_beginning: bool) -> Start:
    """Decide where to begin with a file that has a followed path and no mark.

    Only existing content can be skipped, and only before anything was stored; a file that appears
    later, or while the receiver was down, is new as a whole.
    """
    if first_scan and not resumed and not from_beginning:
        return Start.END
    return Start.BEGINNING


class Sibling(NamedTuple):
    """A file in the directory of a followed path."""

    name: str
    path: str
    file_id: FileId
    size: int
    mtime_ns: int


_NUMBER = re.compile(r"(?<=\.)\d{1,4}\Z")
"""A rotation's number at the end of a name; longer ones are dates."""

_COMPRESSED = ("gz", "bz2", "xz", "zst")

# What log writers and logrotate append: .1  -20240131  .2024-01-31T10-00-00  _3  .old
_ROTATION = r"[._-](?:\d[\d._:T-]*|old|bak|prev)"


def is_rotated_name(base: str, name: str) -> bool:
    """Whether ``name`` is what ``base`` may be called after a rotation.

    Both styles are known: ``app.log.1`` and ``app-2024-01-31.log``.
    """
    stem, dot, extension = base.rpartition(".")
    styles = [re.escape(base) + _ROTATION]
    if stem:
        styles.append(re.escape(stem) + _ROTATION + re.escape(dot + extension))
    return any(re.fullmatch(style, name) for style in styles)


def is_compressed_name(base: str, name: str) -> bool:
    """Whether ``name`` is what ``base`` may be called after a rotation with compression."""
    stem, _, ending = name.rpartition(".")
    return ending in _COMPRESSED and (stem == base or is_rotated_name(base, stem))


def missed_rotations(
    marks: Sequence[Mark],
    siblings: Iterable[Sibling],
    known: set[FileId],
    proven: set[FileId],
    *,
    clock_went_back: bool = False,
) -> list[Sibling]:
    """Return the files that had the path after the newest mark and lost it unseen, oldest first.

    Numbers in names (``app.log.1``) tell the order whatever the clock did, once two proven files of
    the path tell whether they count up or down. Else times tell: a file that was written to after
    our last scan of the newest cannot have been read before, for files that were read have a mark,
    or were dropped as older (``superseded``).

    Args:
        marks: those of the path, in the order of age.
        siblings: the files beside it.
        known: files that are none to be missed.
        proven: files that still hold the stored bytes that their marks speak of. The number of any
            other may be that of a file which got the inode since.
        clock_went_back: whether the file that has the path now bears an earlier time than the
            newest mark. Numbers are then taken to count down, as logrotate's do, if no two proven
            files tell.
    """
    newest = marks[-1]
    base = newest.path.rpartition("/")[2]
    rotated = [sibling for sibling in siblings if is_rotated_name(base, sibling.name)]
    numbers = {s.file_id: int(m[0]) for s in rotated if (m := _NUMBER.search(s.name)) is not None}
    of_marks = [numbers.get(m.file_id) if m.file_id in proven else None for m in marks]
    here = of_marks[-1]
    before = next((number for number in of_marks[-2::-1] if number is not None), None)
    step = 0 if here is None else -1 if before is None else here - before
    if before is None and not clock_went_back:
        step = 0  # which way they count is not known

    def is_newer(sibling: Sibling) -> bool:
        number = numbers.get(sibling.file_id)
        if here is None or number is None or not step:
            return sibling.mtime_ns >= newest.mtime_ns
        return (number - here) * step > 0

    def age(sibling: Sibling) -> tuple[int, int, str]:
        return numbers.get(sibling.file_id, 0) * step, sibling.mtime_ns, sibling.name

    return sorted((s for s in rotated if s.file_id not in known and is_newer(s)), key=age)


def superseded(mark: Mark, newer: Sequence[Mark]) -> bool:
    """Whether a renamed file that is read to its end may be forgotten.

    Args:
        mark: the file's mark.
        newer: the marks after it for the same path.

    The last file to lose the name is kept, since processes that have not reopened their log still
    write to it; and so is one with a time that ``missed_rotations`` would take for a new file.
    """
    return len(newer) >= 2 and mark.mtime_ns < newer[-1].mtime_ns

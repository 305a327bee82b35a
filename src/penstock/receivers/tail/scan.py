"""One scan of the disk: determines the followed files, given the previous ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from penstock.receivers.tail.follow import (
    Action,
    Decision,
    FileId,
    FollowOptions,
    Glance,
    Mark,
    Place,
    Sibling,
    Start,
    decide,
    fingerprint,
    is_rotated_name,
    is_same_file,
    missed_rotations,
)
from penstock.receivers.tail.followed_file import FollowedFile
from penstock.receivers.tail.listing import Found, device_below, siblings
from penstock.receivers.tail.open_files import OpenFiles, TooManyFilesError
from penstock.receivers.tail.packed import LARGEST_PACKED_BYTES, is_packed_name, packed_size
from penstock.receivers.tail.problems import Problems


@dataclass(frozen=True, slots=True)
class _Seen:
    """The location of a followed file, and whether its stored part is intact.

    ``path`` is its name where that is known or needed; ``intact`` is None when it cannot be read.
    ``glance`` was taken before the listing in which rotated files are searched for.
    """

    file: FollowedFile
    place: Place
    path: str | None
    intact: bool | None
    glance: Glance


@dataclass(frozen=True, slots=True)
class _Case:
    """The decision about one followed file.

    ``decision`` is None when it cannot be read now: it is kept as it is for the next scan.
    """

    seen: _Seen
    decision: Decision | None
    copy: Sibling | None
    missed: list[Sibling]


class Scan:
    """The facts of one moment, and the resulting decisions.

    A scan may fail half way, and is then thrown away: up to then it has opened files, and found out
    which ones some marks speak of, which does no harm, and moved no mark within its file.

    Args:
        files: the followed files, in order of age within each path.
        found: the files that the patterns match now, by real paths.
        start: where to begin in a matched file without a mark.
        options: for the files that are new.
        open_files: counts open files.
        problems: reports problems.
    """

    def __init__(
        self,
        files: list[FollowedFile],
        found: Iterable[Found],
        start: Start,
        options: FollowOptions,
        open_files: OpenFiles,
        problems: Problems,
    ) -> None:
        self._files = files
        self._found = {file.file_id: file for file in found}
        self._start = start
        self._options = options
        self._open_files = open_files
        self._unopened = 0
        self._problems = problems
        self._marked: set[FileId] = set()
        self._known: set[FileId] = set()
        self._proven: set[FileId] = set()
        """Those that hold stored bytes of which a mark speaks."""
        self._of_path: dict[str, list[FollowedFile]] = {}
        for file in files:
            self._of_path.setdefault(file.mark.path, []).append(file)
        self._at_path = {file.path: file for file in self._found.values()}
        self._inodes: dict[str, dict[int, list[Found | Sibling]]] = {}
        """The files of a directory, or those beside a path that may be its rotated ones."""
        self._listings: dict[tuple[str, str | None], list[Sibling]] = {}

    def take(self) -> list[FollowedFile]:
        """Return the files that are followed from now on.

        Raises:
            OSError: a directory could not be read.
        """
        self._identify()
        self._marked = {file.mark.file_id for file in self._files}
        self._known = self._marked | set(self._found)
        # All are seen before the first is decided: only then is it known which of the marked inodes
        # belong to other files by now, and so may be rotated files that were missed.
        seen = [self._see(file) for file in self._files]
        # Whoever truncates a file has copied it before: a listing from before it was seen truncated
        # may lack the copy.
        self._listings.clear()
        cases = [self._decide(each) for each in seen]
        seen_at = {each.file.mark.path: each for each in seen}
        followed = [file for case in cases for file in self._apply(case)]
        for found in self._found.values():
            if found.file_id not in self._marked:
                mark = _new_mark(found.path, found, found.name)
                followed.append(self._begin(mark, found.path, self._start))
                self._tell_replaced(followed[-1], seen_at.get(found.path))
        self._tell_unopened()
        # What has a path now is the newest there, also where an older mark led to it: that of a
        # deleted file, whose inode it got, or of a file that was renamed to this path.
        return sorted(followed, key=lambda file: file.place is Place.FOLLOWED)

    # Identity: which files the marks speak of.

    def _identify(self) -> None:
        """Give marks whose device and inode lead to other bytes, or to none, those of the file."""
        lost = [file for file in self._files if not self._has_its_id(file)]
        if not lost:
            return
        taken = {file.mark.file_id for file in self._files} - {file.mark.file_id for file in lost}
        for find in (self._same_inode, self._same_path):
            for file in lost:
                found = find(file.mark, taken)
                if found is not None:
                    taken.add(found)
                    file.move(found)
            lost = [file for file in lost if file.mark.file_id not in taken]

    def _has_its_id(self, file: FollowedFile) -> bool:
        mark = file.mark
        if file.is_open:  # while we hold it, its volume may have been detached and attached again
            now = self._at_path.get(mark.path)
            return now is None or not _is_moved(mark, now)
        holder = self._holder(mark)
        return holder is not None and self._begins_as(mark, holder)

    def _same_inode(self, mark: Mark, taken: set[FileId]) -> FileId | None:
        for file in self._with_inode(mark):
            if _is_moved(mark, file) and self._is_file_of(mark, file, taken):
                return file.file_id
        return None

    def _same_path(self, mark: Mark, taken: set[FileId]) -> FileId | None:
        file = self._at_path.get(mark.path)
        is_newest = self._of_path[mark.path][-1].mark is mark
        if file is None or not is_newest or not self._is_file_of(mark, file, taken):
            return None
        for rotated in self._siblings(mark.path, rotated_only=True):
            if rotated.file_id not in taken and self._begins_as(mark, rotated):
                return None  # two begin alike: the older one is searched for (``_find_copy``)
        if file.file_id.device == mark.file_id.device:
            self._problems.tell(
                ("replaced", mark.path),
                f"{mark.path} is another file than before, by its inode, and begins with the "
                f"{mark.offset} bytes that are stored: it is read on from there",
            )
        return file.file_id

    def _is_file_of(self, mark: Mark, file: Found | Sibling, taken: set[FileId]) -> bool:
        return (
            file.file_id not in taken
            and is_same_file(mark, file.file_id, file.path)
            and self._begins_as(mark, file)
        )

    @cached_property
    def _found_inodes(self) -> dict[int, list[Found | Sibling]]:
        return _by_inode(self._found.values())

    def _holder(self, mark: Mark) -> Found | Sibling | None:
        """Return the file that has the device and inode of a mark, where it could be."""
        same = (file for file in self._with_inode(mark) if file.file_id == mark.file_id)
        return next(same, None)

    def _with_inode(self, mark: Mark) -> Iterable[Found | Sibling]:
        yield from self._found_inodes.get(mark.file_id.inode, ())
        # Without stored bytes there is no fingerprint, and any file may have got the inode since.
        rotated_only = mark.offset == 0
        key = mark.path if rotated_only else os.path.dirname(mark.path)
        if key not in self._inodes:
            self._inodes[key] = _by_inode(self._siblings(mark.path, rotated_only=rotated_only))
        yield from self._inodes[key].get(mark.file_id.inode, ())

    # Seeing and deciding: nothing from here down to _apply changes a mark.

    def _see(self, file: FollowedFile) -> _Seen:
        place, path = self._locate(file)
        intact = self._is_intact(file, path)
        if place is Place.MISSING or (intact is False and place is not Place.FOLLOWED):
            self._known.discard(file.mark.file_id)
        if intact and file.mark.offset:  # without stored bytes it may be any file
            self._proven.add(file.mark.file_id)
        glance = file.glance() if file.is_open else Glance(file.mark.mtime_ns)
        return _Seen(file, place, path, intact, glance)

    def _locate(self, file: FollowedFile) -> tuple[Place, str | None]:
        found = self._found.get(file.mark.file_id)
        if found is not None:
            return Place.FOLLOWED, found.path
        if file.is_open:
            try:
                return (Place.RENAMED if file.facts().st_nlink else Place.UNLINKED), None
            except OSError:
                file.close()  # of a network file system that was detached (ESTALE)
        holder = self._holder(file.mark)
        return (Place.MISSING, None) if holder is None else (Place.RENAMED, holder.path)

    def _is_intact(self, file: FollowedFile, path: str | None) -> bool | None:
        if not file.is_open and (path is None or not self._open(file, path)):
            return None
        try:
            return file.is_intact()
        except OSError as error:
            self._problems.tell(("open", path), f"cannot read {file.mark.path}: {error}", error)
            return None

    def _decide(self, seen: _Seen) -> _Case:
        file = seen.file
        decision, copy = None, None
        if seen.place is Place.MISSING or seen.intact is not None:
            copy = None if seen.intact else self._find_copy(file.mark)
            decision = decide(seen.place, intact=bool(seen.intact), copied=copy is not None)
        if seen.place is Place.MISSING and copy is None and self._is_detached(file.mark):
            decision = None
        missed = []
        if self._of_path[file.mark.path][-1] is file and self._may_have_successors(seen):
            stood_in = file.mark if copy is None else replace(file.mark, file_id=copy.file_id)
            missed = [s for s in self._rotated_since(stood_in) if not self._is_copy_of(s, seen)]
            missed += self._unfollowed_at(file.mark)
            self._known.update(sibling.file_id for sibling in missed)
        return _Case(seen, decision, copy, missed)

    def _may_have_successors(self, seen: _Seen) -> bool:
        """Whether other files may have had the path since: the file left it, or its content did.

        Without stored bytes there is no fingerprint, so then any write raises the question.
        """
        mark = seen.file.mark
        if seen.path != mark.path or seen.intact is False:
            return True
        return mark.offset == 0 and seen.glance.mtime_ns != mark.mtime_ns

    def _unfollowed_at(self, mark: Mark) -> list[Sibling]:
        """Return the file that has a mark's path now, to which a link led, and does no more."""
        if not mark.name or mark.path in self._at_path:
            return []
        beside = self._siblings(mark.path, rotated_only=False)
        return [s for s in beside if s.path == mark.path and s.file_id not in self._known]

    def _is_detached(self, mark: Mark) -> bool:
        """Whether the volume of a mark's file is not there: it may be attached later, or again."""
        directory = os.path.dirname(mark.path)
        is_detached = (
            not self._siblings(mark.path, rotated_only=False)
            and device_below(mark.path) != mark.file_id.device
        )
        if is_detached:
            self._problems.tell(
                ("detached", directory),
                f"{directory} is not there, or is empty, and is not on the device that it was on: "
                f"waits for the files that were followed there, as {mark.path}",
            )
        else:
            self._problems.settle(("detached", directory))
        return is_detached

    def _is_copy_of(self, sibling: Sibling, seen: _Seen) -> bool:
        """Whether the sibling is a copy, complete or not, of what the file itself still holds.

        So it is between the two steps of a copytruncate. The file is read where it is; should it be
        truncated before that, the next scan finds the copy.
        """
        if seen.place is not Place.FOLLOWED or not seen.file.is_open:
            return False
        if sibling.size > seen.file.facts().st_size:
            return False
        size = sibling.size
        crc = seen.file.fingerprint_at(size)
        held = replace(seen.file.mark, offset=size, crc=crc, holes=())
        return self._begins_as(held, sibling)

    def _find_copy(self, mark: Mark) -> Sibling | None:
        """Return the rotated file that begins with what the mark says is stored."""
        candidates = self._rotated_since(mark)
        if self._clock_went_back(mark):  # then the copy may bear an earlier time than the mark
            rotated = self._siblings(mark.path, rotated_only=True)
            others = (s for s in rotated if s not in candidates and s.file_id not in self._known)
            candidates += sorted(others)  # by name, so the last rotation's first
        for sibling in candidates:
            if mark.offset > 0 and self._begins_as(mark, sibling):
                self._known.add(sibling.file_id)
                self._proven.add(sibling.file_id)
                return sibling
        return None

    def _begins_as(self, mark: Mark, sibling: Found | Sibling) -> bool:
        mark = replace(mark, file_id=sibling.file_id)
        file = FollowedFile(mark, self._options, OpenFiles(1))  # for a moment only
        try:
            return self._open(file, sibling.path) and file.is_intact()
        finally:
            file.close()

    def _rotated_since(self, mark: Mark) -> list[Sibling]:
        older = [file.mark for file in self._of_path[mark.path][:-1]]
        rotated = self._siblings(mark.path, rotated_only=True)
        went_back = self._clock_went_back(mark)
        return missed_rotations(
            [*older, mark], rotated, self._known, self._proven, clock_went_back=went_back
        )

    def _clock_went_back(self, mark: Mark) -> bool:
        """Whether what has the path now was written to before, by its time, the mark's file was."""
        now = self._at_path.get(mark.path)
        return now is not None and now.mtime_ns < mark.mtime_ns

    def _siblings(self, path: str, *, rotated_only: bool) -> list[Sibling]:
        directory, base = os.path.split(path)
        key = (directory, base if rotated_only else None)
        if key not in self._listings:
            rotated = partial(is_rotated_name, base)
            self._listings[key] = siblings(directory, rotated if rotated_only else _any_name)
        return self._listings[key]

    # Acting: nothing below raises.

    def _apply(self, case: _Case) -> list[FollowedFile]:
        seen, file, taken_in = case.seen, case.seen.file, self._take_in(case)
        file.place = seen.place
        if case.decision is None:
            return [file, *taken_in]
        if case.decision.content_lost and not file.mark.is_whole:
            self._tell_lost(seen)
        action = case.decision.action
        if action is Action.DROP:
            file.close()
            return taken_in
        if action is Action.START_OVER:
            file.start_over(seen.glance)
        elif file.mark.offset == 0:
            file.note_scan(seen.glance)
        found = self._found.get(file.mark.file_id)
        if found is not None:
            file.rename(found.path, found.name)
            return [*taken_in, file]
        return [file, *taken_in]

    def _take_in(self, case: _Case) -> list[FollowedFile]:
        """Begin the files that had the path of ``case`` after it, or hold a copy of it."""
        mark = case.seen.file.mark
        begun = []
        if case.copy is not None:
            begun.append(self._begin(_mark_of_copy(mark, case.copy), case.copy.path))
        for missed in case.missed:
            begun.append(self._begin(_new_mark(mark.path, missed, mark.name), missed.path))
        for file in begun:
            file.place = Place.RENAMED
        return begun

    def _begin(self, mark: Mark, path: str, start: Start = Start.BEGINNING) -> FollowedFile:
        at_end = start is Start.END
        file = FollowedFile(mark, self._options, self._open_files, begin_at_end=at_end)
        self._open(file, path)  # if this fails, the next scans try again
        return file

    def _open(self, file: FollowedFile, path: str) -> bool:
        try:
            opened = file.open(path)
        except FileNotFoundError:
            return False  # renamed since it was listed: the next scan finds it by its inode
        except TooManyFilesError:
            self._unopened += 1
            return False
        except OSError as error:
            self._problems.tell(("open", path), f"cannot open {path}: {error}", error)
            return False
        self._problems.settle(("open", path))
        return opened

    def _tell_unopened(self) -> None:
        if not self._unopened:
            self._problems.settle("unopened")
            return
        self._problems.tell(
            "unopened",
            f"{self._unopened} files are not read: this process may hold {self._open_files.most} "
            "open beside the journal's; raise its limit (ulimit -n, LimitNOFILE=) and restart it, "
            "or follow fewer files",
        )

    def _find_packed(self, mark: Mark) -> tuple[str, int] | None:
        """Return the compressed file that begins with what is stored, and its size unpacked."""
        base = os.path.basename(mark.path)
        try:
            beside = self._siblings(mark.path, rotated_only=False)
        except OSError:
            return None
        for file in sorted(beside, key=lambda file: file.mtime_ns):
            if (
                is_packed_name(base, file.name)
                and file.size <= LARGEST_PACKED_BYTES
                and file.mtime_ns // 10**9 >= mark.mtime_ns // 10**9
                and (size := packed_size(file.path, mark)) is not None
            ):
                return file.path, size
        return None

    def _tell_lost(self, seen: _Seen) -> None:
        mark = seen.file.mark
        packed = self._find_packed(mark)
        if packed is not None:
            path, size = packed
            if size > mark.offset:
                self._problems.report(
                    f"{mark.path} was rotated and compressed before it was read to its end: the "
                    f"{size - mark.offset} bytes after byte {mark.offset} are in {path}, which is "
                    "not read. Have the last rotated file left uncompressed (delaycompress)",
                    None,
                )
            return
        what = "is gone, and "
        rest = (
            f"no copy of it was found: lines after byte {mark.offset} that were not read yet, "
            "if there were any, are lost"
        )
        if seen.place is Place.FOLLOWED:
            what = "was truncated or rewritten, and is read from its beginning; "
            if seen.file.is_read:
                rest = f"it was read to its end, byte {mark.offset}, when last looked at"
        elif mark.path in self._at_path:
            rest += "; the file that has its path now is read from its beginning"
        self._problems.report(f"{mark.path} (inode {mark.file_id.inode}) {what}{rest}", None)

    def _is_rotated(self, seen: _Seen) -> bool:
        """Whether a file has its name still, or that of a rotated one; no backup of an editor."""
        if seen.place is not Place.RENAMED:
            return seen.place is Place.FOLLOWED
        mark = seen.file.mark
        try:
            rotated = self._siblings(mark.path, rotated_only=True)
        except OSError:
            return True
        return any(sibling.file_id == mark.file_id for sibling in rotated)

    def _tell_replaced(self, file: FollowedFile, before: _Seen | None) -> None:
        """Report that lines are read again, where a file was replaced by an edited or grown one."""
        if before is None or not file.repeats(before.file) or self._is_rotated(before):
            return
        self._problems.tell(
            ("replaced", file.mark.path),
            f"{file.mark.path} was replaced by another file with some of its lines, as editors and "
            "rsync do: that one is read from its beginning, so lines are stored again. Have lines "
            "appended (rsync --append), or the file copied under another name",
        )


def _any_name(_name: str) -> bool:
    return True


def _new_mark(path: str, file: Found | Sibling, name: str) -> Mark:
    return Mark(path, file.file_id, 0, fingerprint(b"", b""), file.mtime_ns, name)


def _mark_of_copy(mark: Mark, copy: Sibling) -> Mark:
    return replace(mark, file_id=copy.file_id, mtime_ns=copy.mtime_ns, is_whole=False)


def _is_moved(mark: Mark, file: Found | Sibling) -> bool:
    return file.file_id.inode == mark.file_id.inode and file.file_id.device != mark.file_id.device


def _by_inode(files: Iterable[Found | Sibling]) -> dict[int, list[Found | Sibling]]:
    found: dict[int, list[Found | Sibling]] = {}
    for file in files:
        found.setdefault(file.file_id.inode, []).append(file)
    return found

"""One scan of the disk: determines the followed files, given the previous ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from penstock.receivers.tail.follow import (
    NO_DEVICE,
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
    is_compressed_name,
    is_rotated_name,
    missed_rotations,
)
from penstock.receivers.tail.followed_file import FollowedFile
from penstock.receivers.tail.listing import Found, siblings

Report = Callable[[str, BaseException | None], None]
"""Takes a message and its cause, as ``Receiver.reportError`` does."""


class Problems:
    """Keeps a receiver that polls from reporting the same trouble at every poll."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._open: set[Hashable] = set()

    def tell(self, key: Hashable, message: str, error: BaseException | None = None) -> None:
        """Report unless this key was told since it was last settled."""
        if key not in self._open:
            self._open.add(key)
            self.report(message, error)

    def settle(self, key: Hashable) -> None:
        """Take note that this problem is over."""
        self._open.discard(key)


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
        most_open: how many files may be open.
        problems: reports problems.
    """

    def __init__(
        self,
        files: list[FollowedFile],
        found: Iterable[Found],
        start: Start,
        options: FollowOptions,
        most_open: int,
        problems: Problems,
    ) -> None:
        self._files = files
        self._found = {file.file_id: file for file in found}
        self._start = start
        self._options = options
        self._most_open = most_open
        self._spare = most_open - sum(file.is_open for file in files)
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
        followed = [file for case in cases for file in self._apply(case)]
        for found in self._found.values():
            if found.file_id not in self._marked:
                mark = _new_mark(found.path, found, found.name)
                followed.append(self._begin(mark, found.path, self._start))
        self._tell_unopened()
        # What has a path now is the newest there, also where an older mark led to it: that of a
        # deleted file, whose inode it got, or of a file that was renamed to this path.
        return sorted(followed, key=lambda file: file.place is Place.FOLLOWED)

    # Identity: which files the marks speak of.

    def _identify(self) -> None:
        """Find the files of stored marks: by inode, and by path or else by content."""
        taken = {file.mark.file_id for file in self._files}
        for is_it in (lambda mark, found: found.path == mark.path, self._begins_as):
            for file in self._files:
                if file.mark.file_id.device != NO_DEVICE:
                    continue
                places = (f for f in self._with_inode(file.mark) if f.file_id not in taken)
                if (found := next((f for f in places if is_it(file.mark, f)), None)) is not None:
                    taken.add(found.file_id)
                    file.identify(found.file_id)

    @cached_property
    def _found_inodes(self) -> dict[int, list[Found | Sibling]]:
        return _by_inode(self._found.values())

    def _holder(self, mark: Mark) -> Found | Sibling | None:
        """Return the file that a mark speaks of, where it could be."""
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
        held = replace(seen.file.mark, offset=size, crc=crc)
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
        file = FollowedFile(mark, self._options)
        try:
            return self._try_open(file, sibling.path) and file.is_intact()
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
        file = FollowedFile(mark, self._options, begin_at_end=at_end)
        self._open(file, path)  # if this fails, the next scans try again
        return file

    def _open(self, file: FollowedFile, path: str) -> bool:
        if self._spare <= 0:
            self._unopened += 1
            return False
        opened = self._try_open(file, path)
        self._spare -= opened
        return opened

    def _try_open(self, file: FollowedFile, path: str) -> bool:
        try:
            opened = file.open(path)
        except FileNotFoundError:
            return False  # renamed since it was listed: the next scan finds it by its inode
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
            f"{self._unopened} files are not read: this process may hold {self._most_open} "
            "open beside the journal's; raise its limit (ulimit -n, LimitNOFILE=) and restart it, "
            "or follow fewer files",
        )

    def _tell_lost(self, seen: _Seen) -> None:
        mark = seen.file.mark
        what = "is gone, and "
        rest = (
            f"no copy of it was found: lines after byte {mark.offset} that were not read yet, "
            "if there were any, are "
        )
        compressed = self._compressed_since(mark)
        rest += "lost" if compressed is None else f"in {compressed} at most, which is not read"
        if seen.place is Place.FOLLOWED:
            what = "was truncated or rewritten, and is read from its beginning; "
            if seen.file.is_read:
                rest = f"it was read to its end, byte {mark.offset}, when last looked at"
        elif mark.path in self._at_path:
            rest += "; the file that has its path now is read from its beginning"
        if compressed is not None:
            rest += ". Have the last rotated file left uncompressed (delaycompress)"
        self._problems.report(f"{mark.path} (inode {mark.file_id.inode}) {what}{rest}", None)

    def _compressed_since(self, mark: Mark) -> str | None:
        """Return the oldest compressed file that a mark's file may have become."""
        base = os.path.basename(mark.path)
        try:
            beside = self._siblings(mark.path, rotated_only=False)
        except OSError:
            return None
        since_s = mark.mtime_ns // 10**9  # compressors keep the time, some without its fraction
        found = [s for s in beside if is_compressed_name(base, s.name)]
        found = [s for s in found if s.mtime_ns // 10**9 >= since_s]
        return min(found, key=lambda s: (s.mtime_ns, s.name)).path if found else None


def _any_name(_name: str) -> bool:
    return True


def _new_mark(path: str, file: Found | Sibling, name: str) -> Mark:
    return Mark(path, file.file_id, 0, fingerprint(b"", b""), file.mtime_ns, name)


def _mark_of_copy(mark: Mark, copy: Sibling) -> Mark:
    return replace(mark, file_id=copy.file_id, mtime_ns=copy.mtime_ns, is_whole=False)


def _by_inode(files: Iterable[Found | Sibling]) -> dict[int, list[Found | Sibling]]:
    found: dict[int, list[Found | Sibling]] = {}
    for file in files:
        found.setdefault(file.file_id.inode, []).append(file)
    return found

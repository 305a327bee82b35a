"""A receiver of followed files that is driven step by step, stopped and started again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from penstock.receivers.tail.follow import FollowOptions, Mark
from penstock.receivers.tail.follower import Follower
from penstock.receivers.tail.positions import MarkPositions, by_path, position_from_marks
from penstock.testing import RecordingHost


def append(path: Path, *lines: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


class Receiver:
    """Follows paths as TailReceiver does, step by step, and is stopped and started in between."""

    def __init__(self, *patterns: Path, rotate_wait_ms: int = 0) -> None:
        self.told: list[str] = []
        self._options = FollowOptions(
            tuple(map(str, patterns)), True, rotate_wait_ms=rotate_wait_ms, max_line_bytes=10_000
        )
        self._marks: dict[str, list[Mark]] = {}
        self._follower: Follower | None = None
        self._was_started = False

    def new_lines(self) -> list[str]:
        """Look and read until nothing is left."""
        if self._follower is None:
            marks = list(itertools.chain(*self.position())) if self._was_started else None
            tell = lambda message, _error: self.told.append(message)  # noqa: E731
            self._follower = Follower(self._options, marks, tell)
            self._was_started = True
        found: list[str] = []
        idle = 0
        while idle < 3:
            self._follower.scan()
            lines = [x for batch in self._follower.read_round() for x in batch["value"].to_pylist()]
            found += lines
            idle = 0 if lines else idle + 1
            self._marks |= self._follower.changes()
        return found

    def stop(self) -> None:
        assert self._follower is not None
        self._follower.close()
        self._follower = None

    def position(self) -> list[list[Mark]]:
        """What a position tells when it has been through JSON."""
        marks = itertools.chain(*self._marks.values())
        position = json.loads(json.dumps(position_from_marks(marks)))
        files = RecordingHost().own_files()
        return [*by_path(MarkPositions(files, position, _fail).marks()).values()]


def _fail(message: str, error: BaseException | None) -> None:
    raise AssertionError(message) from error

"""A location as it would be after a change: what ``validate`` and a start would find there."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.tools.changes.plan import FileChange
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import Content
from penstock.storage import FileInfo

__all__ = ["Preview"]


class Preview(Checkpoint):
    """A location with changes that are not made yet."""

    def __init__(self, checkpoint: Checkpoint, changes: Iterable[FileChange]) -> None:
        self._after = {change.path: change.after for change in changes}
        files = {path: info for path, info in checkpoint.files.items() if path not in self._after}
        new = {p: FileInfo(p, len(data)) for p, data in self._after.items() if data is not None}
        super().__init__(checkpoint.storage, files | new)

    def read(self, paths: Iterable[str]) -> dict[str, Content]:
        """See Checkpoint.read."""
        wanted = list(paths)
        found = super().read(path for path in wanted if path not in self._after)
        planned = {path: self._after[path] for path in wanted if path in self._after}
        return found | {path: data for path, data in planned.items() if data is not None}

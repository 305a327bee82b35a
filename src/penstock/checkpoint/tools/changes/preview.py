"""A location as it would be after a change: what ``validate`` and a start would find there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checkpoint.tools.changes.plan import CopyOf, FileChange
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import Content
from penstock.storage import FileInfo

__all__ = ["Preview"]


class Preview(Checkpoint):
    """A location with changes that are not made yet."""

    def __init__(self, checkpoint: Checkpoint, changes: Iterable[FileChange]) -> None:
        self._after = {change.path: change.after for change in changes if change.root is None}
        files = {path: info for path, info in checkpoint.files.items() if path not in self._after}
        new = {path: len(data) for path, data in self._after.items() if isinstance(data, bytes)}
        copies = {p: each.path for p, each in self._after.items() if isinstance(each, CopyOf)}
        new |= {path: checkpoint.files[source].size for path, source in copies.items()}
        infos = {path: FileInfo(path, size) for path, size in new.items()}
        super().__init__(checkpoint.storage, files | infos)

    def read(self, paths: Iterable[str]) -> dict[str, Content]:
        """See Checkpoint.read."""
        wanted = {path: self._after.get(path) for path in paths}
        sources = {p: after.path for p, after in wanted.items() if isinstance(after, CopyOf)}
        unchanged = [path for path in wanted if path not in self._after]
        held = super().read([*unchanged, *sources.values()])
        found = {path: held[path] for path in unchanged if path in held}
        found |= {path: held[source] for path, source in sources.items() if source in held}
        return found | {p: after for p, after in wanted.items() if isinstance(after, bytes)}

    def read_pieces(self, path: str) -> Iterator[bytes]:
        """See Checkpoint.read_pieces."""
        after = self._after.get(path)
        if isinstance(after, bytes):
            yield after
        else:
            yield from super().read_pieces(after.path if after is not None else path)

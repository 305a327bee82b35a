"""Names of graph checkpoint files: ``checkpoint-<ms>``, and ``checkpoint-<ms>.bk`` while written.

``ms`` is the batch time in milliseconds since the epoch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.storage import Storage

_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,18})(\.bk)?")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a graph checkpoint, or the backup of one."""

    time_ms: int
    is_backup: bool = False

    @property
    def name(self) -> str:
        """The file's name, which is also its path within the checkpoint location."""
        return f"checkpoint-{self.time_ms}{'.bk' if self.is_backup else ''}"


def get_checkpoint_files(storage: Storage) -> list[CheckpointFile]:
    """Return the files in a checkpoint location, by time, a backup before its file.

    Files with similar names are left out. Source: ``Checkpoint.getCheckpointFiles``.
    """
    found = [_parse(entry.name) for entry in storage.list() if not entry.is_folder]
    return sorted((f for f in found if f is not None), key=lambda f: (f.time_ms, not f.is_backup))


def remove_checkpoint_files(storage: Storage) -> None:
    """Remove all of them, oldest first, so that a kill in between leaves the newest."""
    for file in get_checkpoint_files(storage):
        storage.delete(file.name)


def _parse(name: str) -> CheckpointFile | None:
    match = _NAME.fullmatch(name)
    return None if match is None else CheckpointFile(int(match[1]), match[2] is not None)

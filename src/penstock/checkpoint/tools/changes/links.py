"""Symbolic links in a location: Spark and penstock create none, and no change follows them.

Behind a link may be any file of this machine: a copy would disclose it, or a change overwrite it.
"""

from __future__ import annotations

import os

from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import FOLDERS
from penstock.storage import Storage, local_root


def check_no_link(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if a link is among what is copied of a location."""
    if (path := _find_link(checkpoint.storage)) is not None:
        raise refusal(
            checkpoint,
            f"{path} is a symbolic link, which no query creates: what it leads to is not copied",
            "put the file in its place, or remove the link",
        )


def _find_link(storage: Storage) -> str | None:
    """Return the path of a link among what is copied of a location; None without one."""
    root = local_root(storage.url)
    if root is None:
        return None
    for folder, folders, files in os.walk(root):
        if folder == root:  # a journal may be huge, and is not copied
            folders[:] = [name for name in folders if name in FOLDERS]
            files = []
        for name in sorted((*folders, *files)):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                return os.path.relpath(path, root)
    return None


def link_in(storage: Storage, path: str) -> str | None:
    """Return the link that a path leads through, or ends with; None without one."""
    root = local_root(storage.url)
    parts = path.split("/")
    prefixes = ("/".join(parts[: n + 1]) for n in range(len(parts)))
    return next((p for p in prefixes if root and os.path.islink(os.path.join(root, p))), None)

"""Changes of single files, with the checksums that Hadoop keeps beside them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.tools.changes.plan import FileChange
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.checks.checksums import sidecar_of
from penstock.errors import StorageError
from penstock.storage import local_root

CHECKSUM = "its checksum"
"""Why a checksum is changed."""


def new_file(checkpoint: Checkpoint, path: str, data: bytes, why: str) -> Iterator[FileChange]:
    """Yield what writes a file; on a local file system also its checksum."""
    yield FileChange(path, _content(checkpoint, path), data, why)
    if local_root(checkpoint.url) is not None:
        sidecar = sidecar_of(path)
        yield FileChange(sidecar, _content(checkpoint, sidecar), checksum_of(data), CHECKSUM)


def removed_file(checkpoint: Checkpoint, path: str, why: str) -> Iterator[FileChange]:
    """Yield what removes a file, and its checksum first."""
    for each, reason in ((sidecar_of(path), CHECKSUM), (path, why)):
        if (content := _content(checkpoint, each)) is not None:
            yield FileChange(each, content, None, reason)


def _content(checkpoint: Checkpoint, path: str) -> bytes | None:
    """Return what a file holds now; None without one."""
    if path not in checkpoint.files:
        return None
    content = checkpoint.read([path]).get(path)
    if isinstance(content, StorageError):
        raise content
    return content

"""Small immutable files, created atomically and durably: the base of everything durable."""

from penstock.storage.base import CheckpointFileManager, Entry, FileInfo, Storage, check_path
from penstock.storage.opening import attach_storage, open_existing, open_storage
from penstock.storage.urls import local_root

__all__ = [
    "CheckpointFileManager",
    "Entry",
    "FileInfo",
    "Storage",
    "attach_storage",
    "check_path",
    "local_root",
    "open_existing",
    "open_storage",
]

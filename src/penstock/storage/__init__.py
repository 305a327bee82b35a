"""Small immutable files, created atomically and durably: the base of everything durable."""

from penstock.storage.base import Entry, FileInfo, Storage
from penstock.storage.opening import attach_storage, open_existing, open_storage
from penstock.storage.urls import local_root

__all__ = [
    "Entry",
    "FileInfo",
    "Storage",
    "attach_storage",
    "local_root",
    "open_existing",
    "open_storage",
]

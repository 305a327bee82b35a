"""Small immutable files, created atomically and durably: the base of everything durable."""

from penstock.storage.base import Entry, Storage
from penstock.storage.opening import attach_storage, open_storage
from penstock.storage.urls import local_root

__all__ = ["Entry", "Storage", "attach_storage", "local_root", "open_storage"]

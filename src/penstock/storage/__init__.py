"""Small immutable files, created atomically and durably: the ground that everything stands on."""

from penstock.storage.base import Entry, Storage
from penstock.storage.opening import attach_storage, open_storage
from penstock.storage.urls import local_root

__all__ = ["Entry", "Storage", "attach_storage", "local_root", "open_storage"]

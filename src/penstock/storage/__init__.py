"""Small immutable files, created atomically and durably: the ground that everything stands on."""

from penstock.storage.base import Entry, Storage
from penstock.storage.opening import local_root, open_storage

__all__ = ["Entry", "Storage", "local_root", "open_storage"]

"""The keys of a window of time in a form that becomes durable with the records they belong to.

Invariants:

1. A block's position holds the keys of the block's own requests: records and key are in one atomic
   file, so a request is stored with its key or not at all.
2. The position of the newest block (or seal) and the files it names hold every key of the window.
3. A position stays small: beyond FILE_KEYS keys they go into a file of their own, which is durable
   before a position names it.
4. A file is deleted only when a position that does not name it is durable, or when an attempt
   before this one left behind, named by none.

All but ``load`` happens in one thread, the one that encodes blocks. The position::

    {"idempotency": {"keys": {"<writer>": "<base64 of entries>"}, "files": [[name, count, time]]}}

An entry is hash (16 bytes), digest (16), start offset, record count and the time by the window's
clock in milliseconds (8 each, little-endian). A file is the CRC-32 of what follows in 8 hex digits,
a newline, and the same ``keys`` as JSON.
"""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.clock import Clock, SteadyClock
from penstock.errors import NotFoundError
from penstock.journal.layout import parse_writer
from penstock.receivers.http.answers import Placement
from penstock.receivers.http.keys import MAX_KEYS, KeptKey
from penstock.receivers.own_files import (
    OwnFiles,
    create_json,
    numbered_files,
    numbered_name,
    read_json,
)

_log = logging.getLogger(__name__)

FILE_KEYS = 1024
"""About 75 KB in every position, at most, plus what one block brings."""
_ENTRY = struct.Struct("<16s16sQQQ")
_POSITION = "idempotency"
_PREFIX = "keys-"


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    count: int
    newest_ms: int


class Position(NamedTuple):
    """A position to store, and which files are garbage once it is durable."""

    value: Any
    garbage: tuple[str, ...]


class KeyWindow:
    """Collects the keys of stores, block by block.

    Args:
        window_ms: how long a key is kept.
        files: where keys go that are too many for a position.
        position: the last durable one, of any receiver; None when there is none.
        clock: the machine's.
    """

    def __init__(
        self,
        window_ms: int,
        files: OwnFiles,
        position: Any = None,
        clock: Clock | None = None,
    ) -> None:
        self._window_ms = window_ms
        self._files = files
        found = position.get(_POSITION, {}) if isinstance(position, dict) else {}
        self._entries = {
            writer: bytearray(base64.b64decode(text))
            for writer, text in found.get("keys", {}).items()
        }
        self._named = [_File(*entry) for entry in found.get("files", ())]
        self._count = sum(len(entries) for entries in self._entries.values()) // _ENTRY.size
        self._newest_ms = max((kept.time_ms for kept in _unpack(self._entries)), default=0)
        self._next_file: int | None = None
        newest_ms = max([self._newest_ms, *(file.newest_ms for file in self._named)])
        self.clock = SteadyClock(clock, newest_ms or None)
        """By which keys age: it begins at the newest key's time, and advances while a receiver
        runs.

        So a key is over when receivers ran for a window after it: neither a wall clock that is set
        nor a downtime makes one over."""

    def load(self) -> list[KeptKey]:
        """Return all keys of the last durable position, oldest first.

        Raises:
            ReceiverError: a file is damaged.
            StorageError: a file cannot be read.
        """
        kept: list[KeptKey] = []
        for file in self._named:
            try:
                kept += _unpack(_from_json(read_json(self._files, file.name)))
            except NotFoundError:
                _log.warning(
                    "The file %s with %d idempotency keys is missing: repeated requests with one "
                    "of them are stored again",
                    file.name,
                    file.count,
                )
        kept += _unpack(self._entries)
        return kept

    def add(self, kept: KeptKey) -> None:
        """Add a key to the block that is being made."""
        start, end = kept.at.start, kept.at.end
        entry = _ENTRY.pack(kept.key, kept.content, start, end - start, kept.time_ms)
        self._entries.setdefault(kept.at.writer, bytearray()).extend(entry)
        self._count += 1
        self._newest_ms = max(self._newest_ms, kept.time_ms)

    def position(self, writer: str, now_ms: int) -> Position | None:
        """Return the position of the block that is being made; None when there are no keys.

        Raises:
            StorageError: keys had to go into a file, and that failed.
        """
        if not self._count and not self._named:
            return None
        garbage: list[str] = []
        if self._count >= FILE_KEYS:
            garbage += self._write_file(writer)
        garbage += self._forget(now_ms)
        keys = {
            writer: base64.b64encode(entries).decode() for writer, entries in self._entries.items()
        }
        named = [[file.name, file.count, file.newest_ms] for file in self._named]
        return Position({_POSITION: {"keys": keys, "files": named}}, tuple(garbage))

    def _write_file(self, writer: str) -> list[str]:
        """Move the keys into a file; return files that earlier attempts left behind."""
        garbage: list[str] = []
        if self._next_file is None:
            self._next_file, garbage = self._scan_files(writer)
        name = numbered_name(_PREFIX, writer, self._next_file)
        create_json(self._files, name, _to_json(self._entries))
        self._named.append(_File(name, self._count, self._newest_ms))
        self._next_file += 1
        self._entries, self._count = {}, 0
        return garbage

    def _forget(self, now_ms: int) -> list[str]:
        """Let go of files that are over, or too many; return their names."""
        over_ms = now_ms - self._window_ms
        if self._newest_ms <= over_ms:
            self._entries, self._count = {}, 0
        total = self._count + sum(file.count for file in self._named)
        forgotten: list[str] = []
        while self._named and (self._named[0].newest_ms <= over_ms or total > MAX_KEYS):
            file = self._named.pop(0)
            total -= file.count
            forgotten.append(file.name)
        return forgotten

    def _scan_files(self, writer: str) -> tuple[int, list[str]]:
        """Return the number of this writer's next file, and what earlier epochs left behind.

        A later epoch may have taken over by now. Its files are named in positions that are not
        known here, so they are left alone.
        """
        named = {file.name for file in self._named}
        own = parse_writer(writer)
        next_file, left_behind = 0, []
        for file in numbered_files(self._files, _PREFIX):
            if file.writer == own:
                next_file = max(next_file, file.number + 1)
            elif own is not None and file.writer.epoch < own.epoch and file.name not in named:
                left_behind.append(file.name)
        return next_file, left_behind


def _unpack(entries: dict[str, Any]) -> Iterator[KeptKey]:
    for writer, packed in entries.items():
        for key, content, start, count, time_ms in _ENTRY.iter_unpack(packed):
            yield KeptKey(key, content, Placement(writer, start, start + count), time_ms)


def _to_json(entries: dict[str, bytearray]) -> dict[str, str]:
    return {writer: base64.b64encode(packed).decode() for writer, packed in entries.items()}


def _from_json(keys: dict[str, str]) -> dict[str, bytes]:
    return {writer: base64.b64decode(packed) for writer, packed in keys.items()}

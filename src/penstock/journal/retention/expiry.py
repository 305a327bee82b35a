"""Expiry: a consumer that has not committed for long holds nothing back any more, and learns of it.

    consumers/<name>.expired     its mark: what it had committed, and when it was expired

Invariants:

1. Nothing expires by itself: ``expire`` is called with the age that an operator chose. A consumer
   is as old as its last commit, or as the oldest record that it has not committed, whichever is
   younger: one that is caught up has nothing to commit, and may run, for however long it does not.
2. An expired consumer neither commits nor begins again as if nothing had happened. Its mark is
   durable before it stops to hold blocks back, and stays until ``remove_consumer``.
3. A consumer that commits while it is being expired stays, or learns of it, whatever the clocks
   say. Each side first publishes its own file, and then reads the other side's:

       expire:   mark -> read the consumer's file -> delete it if it is unchanged, else the mark
       commit:   write the consumer's file -> list the marks

   The side that reads second reads after both have published. Both may see the other: then the
   consumer ends with an error although it stays, and continues at its next start.

A crash leaves a mark beside a consumer's file that still holds blocks back. The consumer is refused
all the same, and the next ``expire`` goes on from there.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.clock import iso_time
from penstock.errors import PenstockError
from penstock.journal.layout import expiry_path
from penstock.journal.retention.consumer_files import (
    ConsumerEntry,
    read_consumer,
    read_consumers,
)
from penstock.journal.retention.notices import remove_consumer
from penstock.journal.stream import JournalStream
from penstock.journal.times import first_written_ms

__all__ = ["AbandonedWarning", "Expired", "expire"]

_log = logging.getLogger(__name__)
_ABANDONED_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Expired:
    """A consumer that was expired."""

    stream: str
    consumer: str
    idle_ms: int
    """The age of its last commit, by this host's clock."""
    waiting_ms: int
    """The age of the block with the oldest record that it has not committed."""


class AbandonedWarning:
    """Warns of consumers for which records wait, without a commit, for a day; of each once."""

    def __init__(self) -> None:
        self._next_ms: dict[str, float] = {}
        """When consumers are looked at again, ms since the epoch."""

    def check(self, stream: JournalStream, own: str, entries: Mapping[str, ConsumerEntry]) -> None:
        """Warn of those among the entries for which records are kept that ``own`` has read."""
        now_ms = time.time_ns() // 1_000_000
        for name, entry in entries.items():
            idle = _idle_ms(entry, now_ms)
            if idle is None or idle < _ABANDONED_MS or now_ms < self._next_ms.get(name, 0):
                continue
            if entry.offsets == entries[own].offsets:
                continue
            try:
                waiting = _waiting_ms(stream, entry, now_ms) or 0
            except PenstockError:  # no commit fails because of a warning
                waiting = 0
            self._next_ms[name] = now_ms + _ABANDONED_MS - waiting
            if waiting >= _ABANDONED_MS:
                self._next_ms[name] = math.inf
                _log.warning(
                    "Consumer %s of stream %s last committed at %s. What it has not read is kept "
                    "for it. If it never comes back: penstock journal consumers rm %s %s %s",
                    name,
                    stream.name,
                    iso_time(now_ms - idle),
                    shlex.quote(stream.storage.url),
                    stream.name,
                    name,
                )


def _idle_ms(entry: ConsumerEntry, now_ms: int) -> int | None:
    """Return the age of a consumer's last commit; None of one that does not tell its time.

    Plain readers do not, and programs before their first commit.
    """
    committed_ms = _committed_ms(entry)
    return None if committed_ms is None else now_ms - committed_ms


def _waiting_ms(stream: JournalStream, entry: ConsumerEntry, now_ms: int) -> int | None:
    """Return for how long records wait for a consumer; None if it is caught up."""
    since = (first_written_ms(stream, writer, entry.offsets) for writer in stream.writers())
    oldest_ms = min((each for each in since if each is not None), default=None)
    return None if oldest_ms is None else now_ms - oldest_ms


def expire(stream: JournalStream, after_ms: int, *, apply: bool = True) -> list[Expired]:
    """Expire the consumers that have had records to commit, and have not, for longer than that.

    Returns them. One that is caught up is not expired, whenever it last committed.

    Without ``apply`` only those that would be expired are returned, and nothing is written.

    Raises:
        ConfigError: records wait for one, and the storage does not tell since when.
        LogFormatError: a consumer's file is damaged.
        StorageError: a file could not be read, written or deleted; the call can be repeated.
    """
    now_ms = time.time_ns() // 1_000_000
    found: list[Expired] = []
    for name, entry in read_consumers(stream).items():
        idle = _idle_ms(entry, now_ms)
        if idle is None or idle <= after_ms:
            continue
        waiting = _waiting_ms(stream, entry, now_ms)
        if waiting is None or waiting <= after_ms:
            continue
        if not apply or _expire(stream, name, entry, now_ms):
            found.append(Expired(stream.name, name, idle, waiting))
    return found


def _expire(stream: JournalStream, name: str, entry: ConsumerEntry, now_ms: int) -> bool:
    mark = expiry_path(stream.name, name)
    text = {"offsets": dict(entry.offsets), "expired": iso_time(now_ms)}
    stream.storage.create(mark, json.dumps(text).encode(), overwrite=True)
    if not _is_unchanged(entry, read_consumer(stream, name)):
        stream.storage.delete(mark)
        return False
    remove_consumer(stream, name, keep_mark=True)
    return True


def _is_unchanged(before: ConsumerEntry, now: ConsumerEntry | None) -> bool:
    """Whether nothing was committed; the time of a commit is not part of an entry's equality."""
    if now is None:
        return False
    return now == before and _committed_ms(now) == _committed_ms(before)


def _committed_ms(entry: ConsumerEntry) -> int | None:
    return None if entry.program is None else entry.program.committed_ms

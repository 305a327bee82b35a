"""A partition of an operator's state, as used by a task: read a version, commit the next.

Invariants:

1. A batch's delta is created exclusively, once in a run of the driver. All attempts of one task,
   also concurrent ones, use the delta of the fastest attempt and discard their own results. So an
   attempt whose input was cut off creates none (``workers.whole_input``).
2. A delta is not a version: the driver publishes the version when all partitions are done
   (``VersionLog``). Before that no copy holds the delta and nothing depends on it. So an
   interrupted batch starts again from the previous version, and its leftover deltas are never read.
3. The layers below a delta are durable before the delta is.
4. Files are deleted when no version from ``oldest`` on uses them.

    read version N-1 -> function -> (pack or snapshot of N-1) -> delta N -> driver: version N
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Any

from penstock.errors import AlreadyExistsError, StorageError
from penstock.state.database import Database, Origin
from penstock.state.delta import (
    Delta,
    Entry,
    encode_delta,
    encode_pack,
    open_changes,
    open_delta,
    read_changes,
    read_outputs,
)
from penstock.state.keys import encode_key
from penstock.state.layers import SNAPSHOT, Layer, is_snapshot_due, layers_to_merge
from penstock.state.layout import FileName, parse_name, partition_folder
from penstock.state.local_copies import local_folder, open_copy, private_database
from penstock.state.snapshot import snapshot_content
from penstock.state.state_file import CODECS
from penstock.state.update import Update, pickle_state
from penstock.storage import Storage

__all__ = ["Partition"]

_log = logging.getLogger(__name__)

_LOADED_AT_A_TIME = 50_000


class Partition:
    """One partition of an operator's state.

    Args:
        storage: holds the state of all operators.
        operator: the operator's name.
        number: the partition's number.
        run: names the run of the driver.
        local: the folder for the local copy; by default this executor's.
        codec: how files are compressed.
    """

    def __init__(
        self,
        storage: Storage,
        operator: str,
        number: int,
        run: str,
        local: str | None = None,
        codec: str = CODECS[0],
    ) -> None:
        self._storage = storage
        self._folder = partition_folder(operator, number)
        self._number = number
        self._run = run
        self._local = local_folder(run, operator, number) if local is None else local
        self._codec = codec

    def open(self, tip: str | None) -> AbstractContextManager[Database]:
        """Open the state after delta ``tip``, None for empty state; raises as ``open_copy``."""
        return open_copy(self._storage, self._folder, self._local, self._number, tip)

    def describe(self, tip: str) -> Delta:
        """Return the footer of a delta; raises as ``open_copy``."""
        return open_delta(self._storage, f"{self._folder}/{tip}")[1]

    def load(self, pairs: Iterable[tuple[Any, Any]], touched_ms: int) -> str | None:
        """Write a snapshot of the initial state; return its tip as version 0.

        If keys are equal the last one counts. Memory use does not depend on the number of pairs.
        Returns None without pairs.

        Raises:
            StateKeyError, StateError: a key has no lasting identity, a state cannot be pickled.
        """
        with private_database(self._local, self._number) as database:
            database.advance(_sorted_pieces(pairs, touched_ms), Origin())
            keys = database.count()
            if keys == 0:
                return None
            snapshot = self._write_snapshot(database, FileName(0, self._run, "snapshot"), 0)
        return self._create_delta(Delta(until_ms=0, keys=keys, layers=(snapshot,)), Update(keys))

    def commit(
        self, database: Database, update: Update, time_ms: int, oldest_tip: str | None = None
    ) -> str | None:
        """Make the result of a batch durable; return the tip of the resulting version.

        A batch without changes and output writes nothing. If layers were merged, files are deleted
        that no version from ``oldest_tip`` on needs.

        Raises:
            StorageError: it cannot be written.
            StateError: a returned record cannot be pickled.
        """
        if update.is_empty:
            return database.origin.tip
        layers = self._compacted(database, time_ms)
        tip = self._create_delta(Delta(time_ms, update.keys, layers), update)
        if oldest_tip is not None and len(layers) < len(database.origin.layers):
            try:
                self.retire(oldest_tip)
            except StorageError:  # the batch is done; the next merge tries again
                _log.warning("Old files of state cannot be deleted", exc_info=True)
        return tip

    def outputs(self, tip: str | None, time_ms: int) -> Iterator[Any]:
        """Yield the output of the batch of that time; ``tip`` is that of its version.

        Raises:
            MissingStateError, DamagedStateError: the delta is missing or damaged.
        """
        name = None if tip is None else parse_name(tip)
        if name is None or name.time_ms != time_ms:
            return iter(())  # the tip belongs to an earlier batch: this one wrote nothing
        file, _ = open_delta(self._storage, f"{self._folder}/{tip}")
        return read_outputs(file)

    def retire(self, oldest_tip: str) -> None:
        """Delete the files that no version from that tip on uses.

        Raises:
            StorageError: one cannot be deleted; the next call continues.
        """
        _, oldest = open_delta(self._storage, f"{self._folder}/{oldest_tip}")
        needed = {oldest_tip, *(layer.name for layer in oldest.layers)}
        self._storage.sweep(self._folder)
        for entry in self._storage.list(self._folder):
            name = parse_name(entry.name)
            is_old = name is not None and name.time_ms <= oldest.until_ms
            if is_old and entry.name not in needed:
                self._storage.delete(f"{self._folder}/{entry.name}")

    def _create_delta(self, delta: Delta, update: Update) -> str:
        name = str(FileName(delta.until_ms, self._run, "delta"))
        content = encode_delta(delta, update.changes, update.outputs, self._codec)
        with suppress(AlreadyExistsError):  # by another attempt, which was faster
            self._storage.create(f"{self._folder}/{name}", content)
        return name

    def _compacted(self, database: Database, time_ms: int) -> tuple[Layer, ...]:
        """Return the layers of the version in the database, merged if that is due."""
        origin = database.origin
        if origin.until_ms is not None and is_snapshot_due(origin.layers):
            name = FileName(time_ms, self._run, "snapshot")
            return (self._write_snapshot(database, name, origin.until_ms),)
        if merged := layers_to_merge(origin.layers):
            return (*origin.layers[: -len(merged)], self._write_pack(merged, time_ms))
        return origin.layers

    def _write_pack(self, layers: tuple[Layer, ...], time_ms: int) -> Layer:
        changes: dict[bytes, Entry | None] = {}
        for layer in layers:
            changes.update(read_changes(open_changes(self._storage, self._folder, layer.name)))
        newest, rank = layers[-1], max(layer.rank for layer in layers)
        name = str(FileName(time_ms, self._run, "pack"))
        content, size = encode_pack(newest.until_ms, changes, self._codec)
        with suppress(AlreadyExistsError):  # written by an earlier attempt, with the same content
            self._storage.create(f"{self._folder}/{name}", content)
        return Layer(name, newest.until_ms, rank + 1, size)

    def _write_snapshot(self, database: Database, name: FileName, until_ms: int) -> Layer:
        size = os.path.getsize(database.path)
        with snapshot_content(database, until_ms, self._codec) as content:
            with suppress(
                AlreadyExistsError
            ):  # written by an earlier attempt, with the same content
                self._storage.create(f"{self._folder}/{name}", content)
            return Layer(str(name), until_ms, SNAPSHOT, size)


def _sorted_pieces(
    pairs: Iterable[tuple[Any, Any]], touched_ms: int
) -> Iterator[list[tuple[bytes, Entry]]]:
    """Yield pairs as rows, in pieces sorted by key, which databases insert faster."""
    rows = ((encode_key(key), Entry(pickle_state(key, value), touched_ms)) for key, value in pairs)
    while piece := dict(islice(rows, _LOADED_AT_A_TIME)):
        yield sorted(piece.items())

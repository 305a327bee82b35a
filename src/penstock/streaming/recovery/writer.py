"""CheckpointWriter: writes graph checkpoints on a separate thread.

Invariants:

1. After the first complete write, a complete file exists at every moment that is as new as the
   newest complete write, or newer. After a kill at any step, a reader finds it.
2. A reader finds the file that was written last: a batch that is done after newer ones were planned
   writes under the newest time.
3. When ``stop`` has given a write up, no further step of it begins. The step that hangs may still
   change a file: until it has ended, no other writer of this process begins at the location.
4. No error of pickling, the codec or the storage ends the thread: the graph is the same in every
   checkpoint, so a failed write only waits for the next one.

Steps, on storage whose ``create`` is atomic and durable also when it overwrites (storage.base): the
content is created as ``checkpoint-<ms>.bk``, then as ``checkpoint-<ms>``, and then the backup is
deleted: this replaces the rename on stores without one. A kill before the second step leaves the
file of an earlier write, or only the backup, which a reader then uses.

Source: ``org.apache.spark.streaming.CheckpointWriter``.
"""

from __future__ import annotations

import logging
import threading
import time

from penstock.errors import StorageError
from penstock.storage import Storage
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import CheckpointFile, get_checkpoint_files

_log = logging.getLogger(__name__)
_MAX_ATTEMPTS = 3
_MAX_FILES = 10
_PATIENCE_S = 10.0
_hanging: dict[str, threading.Thread] = {}
"""The threads that ``stop`` gave up, by location."""


class CheckpointWriter:
    """Takes checkpoints at the pace of batches, and writes at the pace of the storage.

    Of the checkpoints that come during a write, only the newest is written: it contains the others'
    content.

    Args:
        storage: the checkpoint location.
        codec: how files are compressed.
        replaces: whether existing files belong to another graph, and are deleted after the first
            write.

    Raises:
        StorageError: the location cannot be listed, or a write of an earlier run hangs.
    """

    def __init__(self, storage: Storage, codec: str, *, replaces: bool = False) -> None:
        _check_none_hangs(storage)
        self._url = storage.url
        self._handler = CheckpointWriteHandler(storage, codec, replaces=replaces)
        self._changed = threading.Condition()
        self._waiting: Checkpoint | None = None
        self._writing = False
        self._stopped = False
        # A daemon: a storage that hangs does not keep the process alive.
        self._thread = threading.Thread(
            target=self._run, name="penstock-checkpoint-writer", daemon=True
        )
        self._thread.start()

    def write(self, checkpoint: Checkpoint) -> None:
        """Submit a checkpoint; returns before it is written."""
        with self._changed:
            if self._stopped:
                _log.error("Could not submit checkpoint task to the thread pool executor")
                return
            self._waiting = checkpoint
            self._changed.notify_all()
        _log.info("Submitted checkpoint of time %d ms writer queue", checkpoint.checkpoint_time_ms)

    @property
    def failed(self) -> bool:
        """Whether the newest write was given up."""
        return self._handler.failed

    def wait_written(self) -> None:
        """Wait until submitted checkpoints are written or have failed, for 10 s at most."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._writing), _PATIENCE_S)

    def stop(self) -> None:
        """Write submitted checkpoints, for 10 s at most; then drop the rest."""
        with self._changed:
            if self._stopped:
                return
            self._stopped = True
            self._changed.notify_all()
        start_s = time.monotonic()
        self._thread.join(_PATIENCE_S)
        terminated = not self._thread.is_alive()
        self._handler.stopped = True
        if not terminated:
            _hanging[self._url] = self._thread
        _log.info(
            "CheckpointWriter executor terminated? %s, waited for %d ms.",
            str(terminated).lower(),
            (time.monotonic() - start_s) * 1000,
        )

    def _run(self) -> None:
        while (checkpoint := self._take()) is not None:
            self._handler.run(checkpoint)

    def _take(self) -> Checkpoint | None:
        """Wait for a checkpoint and return it; None when the writer is stopped."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            checkpoint, self._waiting = self._waiting, None
            self._writing = checkpoint is not None
            return checkpoint


def _check_none_hangs(storage: Storage) -> None:
    hanging = _hanging.pop(storage.url, None)
    if hanging is not None and hanging.is_alive():
        _hanging[storage.url] = hanging
        raise StorageError(
            "a write of a stopped run of this process hangs, and could replace what is written now",
            operation="write graph checkpoints",
            path=storage.url,
            hint="see whether the storage answers, or start the program in a new process",
        )


class CheckpointWriteHandler:
    """Writes one checkpoint at a time; for one thread.

    Source: ``CheckpointWriter.CheckpointWriteHandler``.
    """

    def __init__(self, storage: Storage, codec: str, *, replaces: bool = False) -> None:
        self._storage = storage
        self._codec = codec
        # Listed once: only this run writes here. A file that may exist counts as existing.
        self._files = set(get_checkpoint_files(storage))
        self._replaced = set(self._files) if replaces else set()
        self._latest_ms = max((file.time_ms for file in self._files), default=0)
        self.stopped = False
        """Whether to begin no further step."""
        self.failed = False
        """Whether the newest write was given up."""

    def run(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, with three attempts at most. Raises nothing."""
        time_ms = checkpoint.checkpoint_time_ms
        self._latest_ms = max(self._latest_ms, time_ms)
        file = CheckpointFile(self._latest_ms)
        uri = self._storage.uri(file.name)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            if self.stopped:
                break
            try:
                self._save(checkpoint, file, uri)
            except Exception:
                _log.warning(
                    "Error in attempt %d of writing checkpoint to %s", attempt, uri, exc_info=True
                )
            else:
                self.failed = False
                return
        self.failed = True
        _log.warning("Could not write checkpoint for time %d ms to file '%s'", time_ms, uri)

    def _save(self, checkpoint: Checkpoint, file: CheckpointFile, uri: str) -> None:
        start_s, time_ms = time.monotonic(), checkpoint.checkpoint_time_ms
        _log.info("Saving checkpoint for time %d ms to file '%s'", time_ms, uri)
        content = checkpoint.serialize(self._codec)
        for part in (CheckpointFile(file.time_ms, is_backup=True), file):
            if self.stopped:
                raise StorageError("the write took too long", operation="write graph checkpoint")
            self._files.add(part)
            self._storage.create(part.name, content, overwrite=True)
            self._replaced.discard(part)
        self._delete_old()
        _log.info(
            "Checkpoint for time %d ms saved to file '%s', took %d bytes and %d ms",
            time_ms,
            uri,
            len(content),
            (time.monotonic() - start_s) * 1000,
        )

    def _delete_old(self) -> None:
        """Delete backups, replaced files and old files; the newest file is complete by now.

        A failed deletion is retried after the next write.
        """
        own = self._files - self._replaced
        whole = sorted((f for f in own if not f.is_backup), key=lambda f: f.time_ms)
        for old in whole[:-_MAX_FILES]:
            _log.info("Deleting %s", self._storage.uri(old.name))
        for file in self._files.difference(whole[-_MAX_FILES:]):
            if self.stopped:
                return
            try:
                self._storage.delete(file.name)
            except Exception:
                _log.warning("Error deleting %s", self._storage.uri(file.name), exc_info=True)
            else:
                self._files.remove(file)

"""RDD checkpoints: RDDs that Spark wrote to storage, so that later RDDs have a short lineage.

Each run writes to its own folder, ``rdds/<run>`` in the checkpoint location. RDD checkpoints with a
mark outlive their run, for restarts (see the invariants of ``penstock.checkpoint.rdd_marks``).

Invariant: a run deletes nothing before it has committed a batch that it planned itself. By then it
has fenced every run that existed when it began, and it deletes only files of those runs that no
mark names. It does not touch files of later runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext

from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.rdd_marks import RddMark, RddMarks
from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.errors import CheckpointError, ConfigError, StorageError, StreamingError
from penstock.storage import Storage, open_storage
from penstock.storage.checks import storage_error
from penstock.storage.syscalls import Syscalls, sync_folder
from penstock.storage.trust import check_trusted

_log = logging.getLogger(__name__)
_FOLDER = "rdds"
_MARKS = "marks"
_CLEANER = "spark.cleaner.referenceTracking.cleanCheckpoints"


class RddCheckpoints:
    """The RDD checkpoints of one checkpoint location. Spark writes those of this run.

    Args:
        sc: the SparkContext that writes them.
        storage: the checkpoint location.
        last_ms: the time of the newest batch that was planned before this run, -1 without one.

    Raises:
        ConfigError: Spark cannot write there, or would delete files that are needed; or other users
            can write there, and the files are unpickled.
        LogFormatError: a mark cannot be read.
    """

    def __init__(self, sc: SparkContext, storage: Storage, last_ms: int = -1) -> None:
        self.marks = RddMarks(storage, f"{_FOLDER}/{_MARKS}")
        self.may_delete = False
        """Whether every earlier run is fenced, so that its files may be deleted."""
        self._last_ms = last_ms
        self._sc = sc
        self._storage = storage
        _check_cleaner(sc)
        url = storage.uri(_FOLDER)
        if local_path(storage, _FOLDER) is not None:
            # Spark's files have the JVM's umask: the folder above them denies access to others.
            open_storage(url, private=True)
            check_trusted(url)
        self._earlier = [run for run in self._folders(_FOLDER) if run != _MARKS]
        try:
            sc.setCheckpointDir(url)
        except Py4JJavaError as error:
            raise ConfigError(
                "Spark cannot write RDD checkpoints to the checkpoint location",
                operation="prepare RDD checkpoints",
                path=url,
                hint="state, windows with an inverse function and DStream.checkpoint need a "
                "location that Hadoop's file systems can write, such as a local path or s3a://",
            ) from error
        # In Spark's form, so that Spark's file names can be compared.
        self._base, _, self._run = str(sc.getCheckpointDir()).rpartition("/")

    def write(self, rdd: RDD[Any], kind: str, shape: dict[str, int]) -> RddMark:
        """Write an RDD that is marked for a checkpoint, if no job did so; return the mark to add.

        Raises:
            StorageError: the files cannot be written or made durable.
            StreamingError: the program set another checkpoint folder.
        """
        try:
            rdd._jrdd.rdd().doCheckpoint()  # as a job does when it ends; a second call does nothing
        except Py4JJavaError as error:
            raise StorageError(
                "an RDD checkpoint cannot be written",
                operation="write RDD checkpoint",
                path=self._url(self._run),
                hint="the batch stays uncommitted and runs again, with the same records, when the "
                "program is started again",
            ) from error
        file = self.file_of(rdd)
        self._make_durable(file)
        sizes, count = self._sizes(file), rdd.getNumPartitions()
        if len(sizes) != count:
            raise StorageError(
                f"the driver sees {len(sizes)} of {count} files that executors wrote",
                operation="write RDD checkpoint",
                path=self._url(file),
                hint="choose a checkpoint location that every host shares",
            )
        return RddMark(kind, shape, file, sizes)

    def load(self, mark: RddMark) -> RDD[Any]:
        """Return the RDD of a mark with a file.

        Raises:
            CheckpointError: files of it are missing or have another size.
        """
        assert mark.file is not None
        found = self._sizes(mark.file)
        if found != mark.sizes:
            raise CheckpointError(
                f"the partitions of an RDD checkpoint have {list(found)} bytes, and had "
                f"{list(mark.sizes)} when it was complete",
                operation="restore RDD checkpoint",
                path=self._url(mark.file),
                hint=f"restore the files from a backup, or {START_ELSEWHERE}",
            )
        for name in self._files(mark.file):
            check_trusted(f"{self._storage.url}/{_FOLDER}/{mark.file}/{name}")
        return self._sc._checkpointFile(self._url(mark.file), self._sc.serializer)  # type: ignore[arg-type]

    def delete(self, file: str) -> None:
        """Delete the files of a deleted mark; raises StorageError if that fails."""
        url = self._url(file)
        assert self._sc._jvm is not None  # a running context has one
        path = self._sc._jvm.org.apache.hadoop.fs.Path(url)
        failed: Exception | None = None
        try:
            files = path.getFileSystem(self._sc._jsc.hadoopConfiguration())
            deleted = files.delete(path, True) or not files.exists(path)
        except Py4JJavaError as error:
            deleted, failed = False, error
        if not deleted:
            raise StorageError(
                "files of an RDD checkpoint cannot be deleted",
                operation="delete RDD checkpoint",
                path=url,
                hint="nothing needs them; the deletion is retried after the next batch",
            ) from failed

    def sweep(self, committed_ms: int, is_abandoned: Callable[[str], bool]) -> None:
        """Delete files of earlier runs that no mark names, once those runs are fenced.

        Called when the batch of ``committed_ms`` is committed. The next call retries failed
        deletions.

        Args:
            committed_ms: the batch's time.
            is_abandoned: whether no program continues with an operator, so that its marks are
                deleted.
        """
        self.may_delete = self.may_delete or committed_ms > self._last_ms
        if not (self.may_delete and self._earlier):
            return
        try:
            self._delete_marks(is_abandoned)
            named = {file for name in self.marks.operators() for file in self._files_named(name)}
            for run in tuple(self._earlier):
                self._sweep_run(run, named)
                self._earlier.remove(run)
        except Exception:  # of either storage; retried after the next batch
            _log.warning("Error deleting RDD checkpoints of earlier runs", exc_info=True)

    def _delete_marks(self, is_abandoned: Callable[[str], bool]) -> None:
        for name in filter(is_abandoned, self.marks.operators()):
            for time_ms in self.marks.times_ms(name):
                self.marks.delete(name, time_ms)

    def _sweep_run(self, run: str, named: set[str]) -> None:
        files = {f"{run}/{name}" for name in self._folders(f"{_FOLDER}/{run}")}
        for file in (files - named) if files & named else [run]:
            self.delete(file)

    def _files_named(self, operator: str) -> Iterable[str]:
        marks = (self.marks.get(operator, time_ms) for time_ms in self.marks.times_ms(operator))
        return [mark.file for mark in marks if mark.file is not None]

    def _folders(self, folder: str) -> list[str]:
        return [entry.name for entry in self._storage.list(folder) if entry.is_folder]

    def _sizes(self, file: str) -> tuple[int, ...]:
        return tuple(self._files(file).values())

    def _files(self, file: str) -> dict[str, int]:
        """Return the sizes of the partitions' files, by name."""
        entries = self._storage.list(f"{_FOLDER}/{file}")
        return {each.name: each.size for each in entries if each.name.startswith("part-")}

    def _url(self, file: str) -> str:
        return f"{self._base}/{file}"

    def file_of(self, rdd: RDD[Any]) -> str:
        """Return the folder, below ``rdds``, of an RDD that Spark wrote.

        Raises:
            StreamingError: the program set another checkpoint folder.
        """
        url = str(rdd.getCheckpointFile())
        base, _, file = url.partition(f"{self._base}/")
        if base or file.count("/") != 1:
            raise StreamingError(
                "the program changed the folder of RDD checkpoints, so state cannot be recovered",
                operation="write RDD checkpoint",
                path=url,
                hint="do not call SparkContext.setCheckpointDir in a streaming program",
            )
        return file

    def _make_durable(self, file: str) -> None:
        """Make files that Spark wrote survive a power cut; object stores need nothing."""
        path = local_path(self._storage, f"{_FOLDER}/{file}")
        if path is None:
            return
        syscalls = Syscalls()
        try:
            for entry in syscalls.scan(path):
                fd = syscalls.open(entry.path, os.O_RDONLY)
                try:
                    syscalls.fsync(fd)
                finally:
                    syscalls.close(fd)
            for folder in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
                sync_folder(syscalls, folder)
        except OSError as error:
            raise storage_error(
                error, operation="sync RDD checkpoint", path=file, url=self._storage.url
            ) from error


def _check_cleaner(sc: SparkContext) -> None:
    if sc.getConf().get(_CLEANER, "false") == "true":
        raise ConfigError(
            f"with {_CLEANER} Spark deletes RDD checkpoints that a restart needs",
            operation="prepare RDD checkpoints",
            hint="leave that setting off; penstock deletes them when they are superseded",
        )

"""Batches as folders of text files, one folder a batch, named by its time.

    out/_lines-1000000/<token>/    being written, by one run of the batch
    out/lines-1000000/             the batch, whole; _penstock in it says of which output

Invariants, on file systems whose rename is atomic (local ones, HDFS):

1. A batch's folder is whole from the moment it exists, and no driver writes in it or deletes it: a
   run of the batch writes a folder of its own, and renames it. Whichever run wrote it, it holds the
   same records. On local file systems its files are durable by then, and its name before the batch
   is done: the batch's entry in the commit log survives a power cut, too.
2. Whoever finds the batch's folder, of its own output by what is noted in it, leaves it and is
   done: a run that repeats a batch, and a driver that was stopped while it wrote and wakes when its
   successor is past the batch. Two outputs with one folder have other records: the second one is
   refused. A folder without the note (cut off before it, or of another program) is the output's
   whose earlier run may have written it, and gets the note.
3. Unfinished folders are deleted when the batch's exists. A run that still writes one fails to do
   so, and finds the batch's folder.
4. A folder becomes the batch's only when the driver sees in it the file of each partition. Tasks
   write these files: on a path that is not shared the driver would rename an empty folder.

Object stores copy and delete where these rename, so there the batch's folder is written in place.
It is whole when it has the note. Without it, it was cut off if Hadoop's folder of unfinished tasks
is there or the file of a partition is not (a committer without such a folder was stopped while it
published), and is written again. A driver that wakes while it writes may then delete what its
successor wrote.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext

from penstock.checkpoint.log_format import dump_json
from penstock.errors import SinkError, StreamingError, UnsharedPathError
from penstock.model import OutputBatch
from penstock.storage.posix import sync_path

_RENAMING = ("file", "hdfs", "viewfs")
"""Schemes of file systems whose rename is atomic, and refuses a folder that exists."""
_PART = re.compile(r"part-([0-9]+)(\..+)?")
"""The file of a partition, perhaps compressed."""
_NOTE = "_penstock"
"""Readers of folders pass over names that begin so."""


def batch_folder(prefix: str, suffix: str | None, time: datetime) -> str:
    """Return ``prefix-TIME_IN_MS[.suffix]``. Source: ``pyspark.streaming.util.rddToFileName``."""
    name = f"{prefix}-{round(time.timestamp() * 1000)}"
    return name if suffix is None else f"{name}.{suffix}"


def save_as_text_files(
    time: datetime, rdd: RDD[Any], output: OutputBatch, *, prefix: str, suffix: str | None
) -> None:
    """Write a batch's records, only once even if the batch runs several times.

    Raises:
        SinkError: another output, or another program, has written the folder.
        StreamingError: the folder is incomplete, from a program that did not rename it into place.
        UnsharedPathError: the driver does not see what tasks wrote.
    """
    folder = BatchFolder(rdd.context, batch_folder(prefix, suffix, time), output)
    if folder.scheme not in _RENAMING:
        _write_in_place(rdd, folder)
    elif folder.is_cut_off():
        raise StreamingError(
            "the batch's folder was cut off by another program",
            operation="saveAsTextFiles",
            path=folder.path,
            hint="delete it and start again: the batch writes it again",
        )
    else:
        _write_and_rename(rdd, folder)


def _write_and_rename(rdd: RDD[Any], folder: BatchFolder) -> None:
    if not folder.is_written():
        try:
            rdd.saveAsTextFile(folder.own)
            folder.check_whole(folder.own, rdd.getNumPartitions())
            folder.note(folder.own)
            folder.publish()
        except (OSError, Py4JJavaError, UnsharedPathError):
            if not folder.is_written():
                raise
    folder.make_name_durable()  # also of a run that was killed before it did
    folder.delete_unfinished()


def _write_in_place(rdd: RDD[Any], folder: BatchFolder) -> None:
    if folder.is_cut_off(rdd.getNumPartitions()):
        folder.delete()
    if not folder.is_written():
        rdd.saveAsTextFile(folder.path)
        try:
            folder.check_whole(folder.path, rdd.getNumPartitions())
        except UnsharedPathError:
            folder.delete()  # else the next run would find it, and take it for the batch
            raise
        folder.note(folder.path)


class BatchFolder:
    """The folder of one batch, while one run writes it."""

    def __init__(self, sc: SparkContext, path: str, output: OutputBatch) -> None:
        assert sc._jvm is not None  # a running context has both
        assert sc._gateway is not None
        self._conf = sc._jsc.hadoopConfiguration()
        self._fs = sc._jvm.org.apache.hadoop.fs
        self._no_options = sc._gateway.new_array(self._fs.Options.Rename, 0)
        folder = self._fs.Path(path)
        self._files = folder.getFileSystem(self._conf)
        self._path = self._files.makeQualified(folder)
        self._unfinished = self._fs.Path(self._path.getParent(), f"_{self._path.getName()}")
        self._own = self._fs.Path(self._unfinished, secrets.token_hex(8))
        self._output = output
        known = [output.location_id, output.output, output.batch_id, output.plan]
        self._note = dump_json(known).encode()

    @property
    def scheme(self) -> str:
        """The URL scheme of the file system."""
        return str(self._path.toUri().getScheme())

    @property
    def path(self) -> str:
        """The batch's folder, as a URL."""
        return str(self._path.toString())

    @property
    def own(self) -> str:
        """The folder that this run writes, as a URL."""
        return str(self._own.toString())

    def is_written(self) -> bool:
        """Whether the batch's folder exists; raises SinkError for one of another output."""
        if not self._files.exists(self._path):
            return False
        known = self._known()
        if not known and self._output.may_be_written:
            self.note(self.path)
        elif known != self._note:
            raise SinkError(
                "the batch's folder exists, and is not this output's: its records would be lost",
                operation="saveAsTextFiles",
                path=self.path,
                ids={"output": self._output.output, "batch": self._output.batch_id},
                hint="give each output, and each program, a prefix of its own; or move the folder "
                "away if it is of a program that is no longer used",
            )
        return True

    def note(self, folder: str) -> None:
        """Note in a folder that the output has written it."""
        stream = self._files.create(self._fs.Path(folder, _NOTE), True)
        try:
            stream.write(self._note)
        finally:
            stream.close()

    def _known(self) -> bytes:
        """Return the note of the batch's folder; empty, too, if a run was killed in it."""
        note = self._fs.Path(self._path, _NOTE)
        if not self._files.exists(note):
            return b""
        stream = self._files.open(note)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def is_cut_off(self, partitions: int = 0) -> bool:
        """Whether the batch's folder was written in place, and not to its end.

        One without a note, of this output, is, too, if it lacks files of so many partitions.
        """
        if self._files.exists(self._fs.Path(self._path, "_temporary")):
            return True
        if not self._output.may_be_written or not self._files.exists(self._path):
            return False
        return not self._known() and bool(self._unseen(self.path, partitions))

    def check_whole(self, folder: str, partitions: int) -> None:
        """Raise UnsharedPathError unless a folder has a file of each partition."""
        if unseen := self._unseen(folder, partitions):
            raise UnsharedPathError(
                f"the driver does not see the files of {len(unseen)} of {partitions} partitions "
                "that tasks wrote; the batch is not written",
                operation="saveAsTextFiles",
                path=self.path,
                hint="choose a path on a file system that is mounted on every host, or an object "
                "store",
            )

    def _unseen(self, folder: str, partitions: int) -> set[int]:
        names = [file.getPath().getName() for file in self._files.listStatus(self._fs.Path(folder))]
        seen = {int(found[1]) for name in names if (found := _PART.fullmatch(name))}
        return set(range(partitions)).difference(seen)

    def delete(self) -> None:
        """Delete the batch's folder."""
        self._files.delete(self._path, True)

    def publish(self) -> None:
        """Rename this run's folder to the batch's; raises when that exists."""
        if self.scheme == "file":
            own = self._own.toUri().getPath()
            for name in [*os.listdir(own), ""]:
                sync_path(os.path.join(own, name))
            # Hadoop's rename would copy into a folder that appears after its check.
            os.rename(own, self._path.toUri().getPath())
        else:
            self.publish_by_hadoop()

    def make_name_durable(self) -> None:
        """Make the folder's name survive a power cut, and those of the folders that it is in."""
        if self.scheme == "file":
            for parent in Path(self._path.toUri().getPath()).parents:
                with suppress(PermissionError):  # so this program's user has not created it
                    sync_path(os.fspath(parent))

    def publish_by_hadoop(self) -> None:
        """As ``publish``, by the file system's rename."""
        files = self._fs.FileContext.getFileContext(self._path.toUri(), self._conf)
        files.rename(self._own, self._path, self._no_options)

    def delete_unfinished(self) -> None:
        """Delete what this run and others left."""
        self._files.delete(self._unfinished, True)

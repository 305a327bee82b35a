"""Inputs that each batch fetches itself: new files of a directory, and queues for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark import RDD

from penstock.streaming.inputs.files import BinaryRecords, FileInputDStream, TextLines
from penstock.streaming.inputs.queue_input import QueueInputDStream
from penstock.streaming.inputs.sources.context_part import ContextPart
from penstock.streaming.operations.dstream import DStream

__all__ = ["PulledStreams"]


class PulledStreams(ContextPart):
    """The part of a StreamingContext that makes streams of files and queues."""

    def textFileStream(self, directory: str, name: str | None = None) -> DStream:
        """Return the stream of lines (UTF-8) of new files in a directory; see ``fileStream``."""
        return self.fileStream(directory, name=name)

    def binaryRecordsStream(
        self, directory: str, recordLength: int, name: str | None = None
    ) -> DStream:
        """Return the stream of records of ``recordLength`` bytes of new files in a directory.

        See ``fileStream`` for which files are taken.
        """
        return FileInputDStream(self._context, directory, BinaryRecords(recordLength), name=name)

    def fileStream(
        self,
        directory: str,
        filter: Callable[[str], bool] | None = None,
        newFilesOnly: bool = True,
        name: str | None = None,
    ) -> DStream:
        """Return the stream of lines of new files in a directory, each file exactly once.

        A batch takes the files modified up to its time, and after the earliest time that a late
        file may have: ``spark.streaming.fileStream.minRememberDuration`` (60 s) ago, or the last
        batch of the run before. Files must come whole: write them elsewhere in the same file
        system and move them in. Names that begin with ``_`` or ``.`` or end with ``._COPYING_``,
        and folders, are passed over. Files stay where they are; a file may go when its batch is
        committed and no window needs it.

        Args:
            directory: a path or URL of any file system that Spark knows, or a glob of directories.
            filter: is asked with each new file's URL whether to take it.
            newFilesOnly: whether the first batch leaves out files that were modified before the
                stream was made; otherwise it goes back as far as a late file may.
            name: the stream's name in the offsets; give one to keep a stream's place when the
                program's inputs change order.

        Raises:
            ConfigError: the filter is not a function.
        """
        return FileInputDStream(
            self._context,
            directory,
            TextLines(),
            wanted=filter,
            new_files_only=newFilesOnly,
            name=name,
        )

    def queueStream(
        self,
        rdds: Iterable[RDD[Any] | Iterable[Any]],
        oneAtATime: bool = True,
        default: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream:
        """Return the stream of a list of RDDs or lists, for tests. Changes of it are not seen."""
        queue = [self._as_rdd(item) for item in rdds]
        standby = None if default is None else self._as_rdd(default)
        return QueueInputDStream(self._context, queue, oneAtATime, standby)

    def _as_rdd(self, item: RDD[Any] | Iterable[Any]) -> RDD[Any]:
        return item if isinstance(item, RDD) else self.sparkContext.parallelize(list(item))

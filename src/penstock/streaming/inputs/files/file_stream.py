"""The input behind textFileStream, binaryRecordsStream and fileStream."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.sql import DataFrame

from penstock.clock import iso_time
from penstock.errors import (
    ConfigError,
    PenstockError,
    RecoveryMismatchError,
    SourceChangedError,
)
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.files.hadoop import HadoopDirectories, reading_pattern
from penstock.streaming.inputs.files.reading import FileReader
from penstock.streaming.inputs.files.selection import (
    FileOffset,
    ListedFile,
    TakenFiles,
    by_folder,
    next_offset,
)
from penstock.streaming.inputs.input import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program

_log = logging.getLogger(__name__)
_MOST_NAMED = 4
_PARTITION_BYTES = 128 << 20  # Spark's spark.sql.files.maxPartitionBytes


class FileInputDStream(InputDStream):
    """The records of files that appear in directories, each file in one batch.

    Offsets are ``{"<stream>": {"after": ms, "until": ms, "files": {"<folder>": [[name, modified_ms,
    length], ...]}}}``: ``files.selection`` says what they mean. What a program must know of them
    stands in ``StreamingContext.fileStream``.

    Source: ``org.apache.spark.streaming.dstream.FileInputDStream``.
    """

    kind = "files"

    def __init__(
        self,
        ssc: Program,
        directory: str,
        reader: FileReader,
        *,
        wanted: Callable[[str], bool] | None = None,
        new_files_only: bool = True,
        name: str | None = None,
    ) -> None:
        if wanted is not None and not callable(wanted):
            raise ConfigError(
                f"filter {wanted!r} is not a function",
                operation="fileStream",
                hint="give a function of a file's URL that is true of the files to take",
            )
        super().__init__(ssc, name)
        self.directory = str(directory)
        self.reader = reader
        self._filter = wanted
        made_ms = ssc.clock.time_ms()
        self._first = FileOffset(made_ms - (0 if new_files_only else self.recall_ms), made_ms)
        self._hadoop: HadoopDirectories | None = None
        self._taken = TakenFiles()
        # The newest offset, whose files were just listed, as it is planned and as it is parsed.
        self._planned: SourceOffset = None
        self._found: FileOffset | None = None
        self._told_missing = False
        self._refused: set[str] = set()

    # -- which files --

    @property
    def recall_ms(self) -> int:
        """How late a file may show up: the remember duration, in whole batch intervals."""
        interval_ms = self.slide_ms
        least_ms = self.ssc.settings.min_remember_duration_ms
        return -(-least_ms // interval_ms) * interval_ms

    def recall(self, taken: SourceRange) -> None:
        """Record the files of an earlier batch as taken."""
        if (offset := self._parse(taken.end)) is not None:
            self._taken.add(offset)

    def set_range(self, time_ms: int, planned: SourceRange) -> None:
        """Learn which files the batch of that time takes."""
        super().set_range(time_ms, planned)
        self.recall(planned)

    def check_offset(self, offset: SourceOffset) -> None:
        """Refuse an offset of another input; see ``InputDStream.check_offset``."""
        self._parse(offset)

    def initial_offset(self) -> SourceOffset:
        """Return the time at which the stream was made, or the earliest that its files may have."""
        return {self.name: self._first.to_json()}

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the window of modification times up to ``time_ms`` and the new files in it.

        If a directory cannot be listed, the offset does not change: no file is left out, and the
        next batch covers the whole period.
        """
        previous, now_ms = self._parse(start) or self._first, self.ssc.clock.time_ms()
        if now_ms < previous.until_ms:
            self._warn_of_clock(previous.until_ms - now_ms)
        window = next_offset(
            previous,
            min(time_ms, now_ms),
            interval_ms=self.slide_ms,
            remember_ms=self.recall_ms,
        )
        try:
            listing = self._list()
        except Py4JJavaError as e:
            _log.warning("Stream %s: %s cannot be listed: %s", self.name, self.directory, _why(e))
            return start
        self._taken.forget(window.after_ms - self.slide_ms)
        for file in self._taken.changed(listing):
            _log.error(
                "Stream %s: %s changed after a batch took it; the change is not read. Write files "
                "elsewhere in the same file system and move them into the directory",
                self.name,
                file.path,
            )
        self._found = self._taken.select(listing, window, self._is_wanted)
        self._planned = {self.name: self._found.to_json()}
        return self._planned

    def _is_wanted(self, url: str) -> bool:
        if self._filter is not None and not self._filter(url):
            return False
        refusal = self.reader.refusal(url)
        if refusal is not None and url not in self._refused:
            self._refused.add(url)
            _log.error("Stream %s leaves out a file: %s", self.name, refusal)
        return refusal is None

    def _warn_of_clock(self, back_ms: int) -> None:
        _log.warning(
            "Stream %s: the clock of this machine was set back by at least %.1f s. Files modified "
            "within the last %g s by it are taken; one that was taken before may be taken "
            "again, and an earlier one that was not is left out (touch it to include it)",
            self.name,
            back_ms / 1000,
            self.recall_ms / 1000,
        )

    def missed_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the window up to that time, as ``latest_offset``; nothing before the stream."""
        previous = self._parse(start) or self._first
        return start if time_ms <= previous.until_ms else self.latest_offset(start, time_ms)

    def missed_times(self, start: SourceOffset, ticks: range) -> Collection[int]:
        """Return the ticks in whose time new files were modified."""
        offset = self.missed_offset(start, ticks[-1])
        files = self._files(SourceRange(start, offset))
        return {ticks[bisect_left(ticks, file.modified_ms)] for file in files}

    def has_records(self, planned: SourceRange) -> bool:
        """Whether there are new files."""
        return bool(self._files(planned))

    def _list(self) -> list[ListedFile]:
        folders = self._directories.expand(self.directory)
        if not folders and not self._told_missing:
            _log.warning("Stream %s: directory %s does not exist yet", self.name, self.directory)
        self._told_missing = not folders
        return [file for folder in folders for file in self._directories.files_in(folder)]

    @property
    def _directories(self) -> HadoopDirectories:
        if self._hadoop is None:
            self._hadoop = HadoopDirectories(self.ssc.sparkContext)
        return self._hadoop

    # -- their records --

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a batch's files.

        Raises:
            SourceChangedError: one of them, planned in an earlier run, was changed or removed.
        """
        sc = self.ssc.sparkContext
        files: Sequence[ListedFile] = self._files(wanted)
        if wanted.end is not self._planned:
            files = self._unchanged(files)
        if not files:
            return sc.emptyRDD()
        return self.reader.read(sc, files).setName(f"{len(files)} files of {self.name}")

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame with the one column ``value``.

        Many small files share a partition, as in ``spark.read``; an RDD has one for each file.
        """
        spark = self.session
        sc = self.ssc.sparkContext
        size = sum(file.length for file in self._files(self.range_of(time_ms)))
        partitions = max(sc.defaultParallelism, -(-size // _PARTITION_BYTES))
        jvm: Any = sc._jvm
        encoder = getattr(jvm.org.apache.spark.sql.Encoders, self.reader.encoder)()
        records: Any = self.get_or_compute(time_ms)
        dataset = spark._jsparkSession.createDataset(records._jrdd.rdd(), encoder)
        return DataFrame(dataset.toDF().coalesce(partitions), spark)

    def has_columns(self) -> bool:
        """Whether ``foreachBatch`` works: always."""
        return True

    def record_count(self, wanted: SourceRange) -> int:
        """Return the number of records in the files, 0 if unknown without reading them."""
        return self.reader.count(self._files(wanted))

    def metadata(self, wanted: SourceRange) -> dict[str, Any]:
        """Return the batch's files, for listeners."""
        paths = [file.path for file in self._files(wanted)]
        return {"files": paths, "Description": "\n".join(paths)}

    def find_damage(self, wanted: SourceRange, error: str) -> PenstockError | None:
        """Return what happened to a file that the error names, None when all are as planned."""
        files = self._files(wanted)
        named = (f for f in files if f.path in error or reading_pattern(f.path) in error)
        try:
            self._unchanged(list(itertools.islice(named, _MOST_NAMED)))
        except PenstockError as damage:
            return damage
        return None

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Check that the files are as they were planned.

        Raises:
            SourceChangedError: one of them was changed or removed.
        """
        self._unchanged(self._files(wanted))
        return True

    def _unchanged(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        """Return the files if they are as planned; without those that Spark is told to pass over.

        Raises:
            SourceChangedError: one is not.
        """
        kept = []
        for folder, planned in by_folder(files).items():
            listed = {file.path: file for file in self._directories.files_in(folder)}
            for file in planned:
                if file.path in listed:
                    _check_same(self.name, file, listed[file.path])
                    kept.append(file)
                elif not self.ssc.settings.ignore_missing_files:
                    raise _removed(self.name, file)
                else:
                    _log.error("Stream %s: %s is missing and left out", self.name, file.path)
        return kept

    # -- offsets --

    def _files(self, wanted: SourceRange) -> tuple[ListedFile, ...]:
        if wanted.start == wanted.end:
            return ()
        parsed = self._parse(wanted.end)
        return () if parsed is None else parsed.files

    def _parse(self, offset: SourceOffset) -> FileOffset | None:
        if offset is self._planned:
            return self._found
        value = self.own_part(offset)
        if value is None:
            return None
        try:
            return FileOffset.from_json(value)
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise RecoveryMismatchError(
                f"the checkpoint location holds offset {offset!r}, which is not an offset of files",
                operation="recover",
                ids={"stream": self.name},
                hint="give the stream another name (name=), or a new checkpoint location",
            ) from e

    def __getstate__(self) -> dict[str, Any]:
        gone = {"_hadoop": None, "_taken": TakenFiles(), "_planned": None, "_found": None}
        return {**super().__getstate__(), **gone}


def _check_same(stream: str, planned: ListedFile, listed: ListedFile) -> None:
    if planned == listed:
        return
    raise SourceChangedError(
        f"a file changed after a batch was planned with it: it had {planned.length} bytes, "
        f"modified at {iso_time(planned.modified_ms)}, and has {listed.length}, modified at "
        f"{iso_time(listed.modified_ms)}",
        operation="read file",
        path=planned.path,
        ids={"stream": stream},
        hint="put back what it held; `touch -d @SECONDS` sets its modification time back",
    )


def _removed(stream: str, planned: ListedFile) -> SourceChangedError:
    return SourceChangedError(
        "a file was removed before the batch that takes it was done",
        operation="read file",
        path=planned.path,
        ids={"stream": stream},
        hint=f"put it back, with its modification time (touch -d @{planned.modified_ms / 1000}); "
        "to continue without it, set spark.files.ignoreMissingFiles=true",
    )


def _why(error: Py4JJavaError) -> str:
    return str(error.java_exception)

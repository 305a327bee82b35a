"""How the records of files are read: by Spark's own readers, in the executors' JVMs.

Each yields one RDD for all files of a batch; Spark's FileInputDStream unites one for each file,
which yields the same partitions and costs far more when there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import RDD, SparkContext

from penstock.errors import ConfigError, PenstockError
from penstock.receivers.lines import HEAD_BYTES, not_text, other_than_text
from penstock.streaming.inputs.files.hadoop import reading_pattern
from penstock.streaming.inputs.files.selection import ListedFile


class FileReader(Protocol):
    """What records files hold."""

    encoder: str
    """Which of Spark's Encoders fits a record."""

    def read(self, sc: SparkContext, files: Sequence[ListedFile]) -> RDD[Any]:
        """Return the records of files, of which there is at least one."""
        ...

    def count(self, files: Sequence[ListedFile]) -> int:
        """Return how many records they hold, 0 when that is not known without reading them."""
        ...

    def refusal(self, url: str) -> PenstockError | None:
        """Return why a file cannot be read, None if nothing is known against it."""
        ...


@dataclass(frozen=True)
class TextLines:
    """Lines of UTF-8 text; compressed files are read as their names' endings say.

    Hadoop leaves out a byte order mark of UTF-8, and knows no other encoding. Local files in UTF-16
    are refused; elsewhere a look into each file would take too long.
    """

    encoder = "STRING"

    def read(self, sc: SparkContext, files: Sequence[ListedFile]) -> RDD[Any]:
        """Return the lines; a partition for each block of each file."""
        return sc.textFile(_patterns(files), minPartitions=1)

    def count(self, files: Sequence[ListedFile]) -> int:
        """Return 0: only reading would tell."""
        return 0

    def refusal(self, url: str) -> PenstockError | None:
        """Return the error for a local file in UTF-16."""
        try:
            with open(url.removeprefix("file:"), "rb") as file:
                kind = other_than_text(file.read(HEAD_BYTES))
        except OSError:  # not a local file, or gone: reading it tells
            return None
        return not_text(kind, url) if kind == "UTF-16" else None


@dataclass(frozen=True)
class BinaryRecords:
    """Records of a fixed length in bytes.

    Raises:
        ConfigError: the length is not a whole number above 0.
    """

    length: int
    encoder = "BINARY"

    def __post_init__(self) -> None:
        if not isinstance(self.length, int) or isinstance(self.length, bool) or self.length < 1:
            raise ConfigError(
                f"record length {self.length!r} is not allowed",
                operation="binaryRecordsStream",
                hint="give the number of bytes of each record, 1 or more",
            )

    def read(self, sc: SparkContext, files: Sequence[ListedFile]) -> RDD[Any]:
        """Return the records as bytes."""
        return sc.binaryRecords(_patterns(files), self.length)

    def count(self, files: Sequence[ListedFile]) -> int:
        """Return how many whole records the files hold."""
        return sum(file.length // self.length for file in files)

    def refusal(self, url: str) -> PenstockError | None:
        """Return None: any bytes will do."""
        return None


def _patterns(files: Sequence[ListedFile]) -> str:
    return ",".join(reading_pattern(file.path) for file in files)

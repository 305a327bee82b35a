"""Every error penstock raises, in one tree.

    PenstockError
    ├── ConfigError                 a setting, name, URL or argument is wrong (also a ValueError)
    │   └── UnsharedPathError       driver and executors do not see the same files
    ├── StorageError                a file operation failed
    │   ├── AlreadyExistsError      exclusive create found the name taken
    │   ├── NotFoundError           the file is not there
    │   └── StorageFullError        no space, quota reached or read-only
    ├── JournalError
    │   ├── FencedError             a successor sealed this writer: it may neither publish nor ack
    │   ├── WriterBrokenError       an earlier publish failed: this writer takes nothing more
    │   │   └── JournalFullError    the bound on the stream's bytes or lag leaves no room
    │   ├── DamagedBlockError       a block fails its checksum or cannot be parsed
    │   │   └── NewerBlockError     a block is sound, and of a format newer than this penstock
    │   ├── MissingBlockError       a range asked for that the journal no longer (or not yet) holds
    │   └── UnreadableRecordError   a sound record that cannot be made a Python value
    ├── CheckpointError
    │   ├── LogFormatError          a log file is torn, altered, or of a newer version
    │   ├── LogGapError             a batch id is missing between two others
    │   ├── RecoveryMismatchError   the program no longer fits what the checkpoint location holds
    │   └── ConcurrentDriverError   another driver uses this checkpoint location
    ├── KafkaError                  a broker refused, failed or did not answer
    │   ├── KafkaDataLossError      records that a batch takes are no longer in their topic
    │   └── KafkaFencedError        another producer took over a partition of an exactly-once sink
    ├── SinkError                   a sink of batches holds other than it was to write
    ├── ReceiverError               a receiver failed or cannot be placed
    └── StreamingError              a streaming program was used against its life cycle
        ├── BadRecordError          a parser refused a record
        ├── BatchFailedError        a batch's job raised; the batch stays uncommitted
        └── SourceChangedError      a file was changed or removed before its batch was done

Each error says what failed, where, and how to fix it: ``operation`` (a verb), ``path``, ``ids``
(stream, writer, batch id, ...), ``cause`` (the exception behind it) and ``hint`` (what to do next,
a command where there is one). ``str(error)`` holds all of them on one line: the message, the causes
down to the root, the hint, and then the facts for those who search logs.
"""

from __future__ import annotations

import traceback
from typing import Any

__all__ = [
    "AlreadyExistsError",
    "BadRecordError",
    "BatchFailedError",
    "CheckpointError",
    "ConcurrentDriverError",
    "ConfigError",
    "DamagedBlockError",
    "FencedError",
    "JournalError",
    "JournalFullError",
    "KafkaDataLossError",
    "KafkaError",
    "KafkaFencedError",
    "LogFormatError",
    "LogGapError",
    "MissingBlockError",
    "NewerBlockError",
    "NotFoundError",
    "PenstockError",
    "ReceiverError",
    "RecoveryMismatchError",
    "SinkError",
    "SourceChangedError",
    "StorageError",
    "StorageFullError",
    "StreamingError",
    "UnreadableRecordError",
    "UnsharedPathError",
    "WriterBrokenError",
]


_CAUSES = 8
"""At most so many causes are in a message: the first ones and those at the root."""
_CHARS = 1000
"""At most so many of each."""


class PenstockError(Exception):
    """Base of all penstock errors; the fields are described at the top of this module."""

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        path: str | None = None,
        ids: dict[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.path = path
        self.ids = dict(ids or {})
        self.hint = hint

    @property
    def cause(self) -> BaseException | None:
        """The exception that this one was raised from, if any."""
        return self.__cause__

    def __str__(self) -> str:
        where = {"operation": self.operation, "path": self.path, **self.ids}
        facts = " ".join(f"{key}={value}" for key, value in where.items() if value is not None)
        more = [*self._causes(), *([f"Hint: {self.hint}"] if self.hint else [])]
        is_ended = not more or self.message.endswith((".", "!", "?"))
        message = self.message if is_ended else f"{self.message}."
        return " ".join([message, *more, *([f"[{facts}]"] if facts else [])])

    def _causes(self) -> list[str]:
        """Return the chain of causes to its root, without those that say nothing new.

        What has many lines is another system's trace: of the first cause its first line counts,
        of those below nothing.
        """
        said: list[str] = []
        seen: set[int] = set()
        cause = self.cause
        while cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            reason = cause.message if isinstance(cause, PenstockError) else _text(cause)
            line, is_trace, _ = reason.partition("\n")
            first_line = one_line(line[:_CHARS])
            # A single word, such as a KeyError's, may stand in the message for another reason.
            text = first_line if " " in first_line else f"{type(cause).__name__}: {first_line}"
            is_said = text in self.message
            is_left_out = is_trace and cause is not self.cause
            if not (is_said or is_left_out or any(first_line in each for each in said)):
                said.append(f"Cause: {type(cause).__name__}: {first_line}.")
            cause = cause.__cause__
        if len(said) > _CAUSES:
            said[_CAUSES // 2 : -_CAUSES // 2] = ["..."]
        return said

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from Spark's Python workers to the driver, so keyword fields must pickle too.
        return (_rebuild, (type(self), self.message, self.__dict__))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit):
        return "its text cannot be formatted"


def printable(error: BaseException) -> BaseException:
    """Return the error, or one in its place if it cannot be formatted, as users' may not be."""
    try:
        str(error)
        traceback.format_exception(error)
    except (Exception, SystemExit):
        message = f"a {type(error).__name__} was raised, whose text cannot be formatted"
        return RuntimeError(message).with_traceback(error.__traceback__)
    return error


def one_line(text: str) -> str:
    """Return a text with all characters escaped that end a line or control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _rebuild(kind: type[PenstockError], message: str, state: dict[str, Any]) -> PenstockError:
    error = kind(message)
    error.__dict__.update(state)
    return error


class ConfigError(PenstockError, ValueError):
    """A setting, name, URL or argument is wrong; raised where it was given, not when it is used."""


class UnsharedPathError(ConfigError):
    """Driver and executors do not see the same files: the path is not shared."""


class StorageError(PenstockError):
    """A file operation failed."""


class AlreadyExistsError(StorageError):
    """An exclusive create found the name taken."""


class NotFoundError(StorageError):
    """The file is not there."""


class StorageFullError(StorageError):
    """There is no space left, a quota is reached, or the file system is read-only."""


class JournalError(PenstockError):
    """Base of what the write-ahead journal raises."""


class FencedError(JournalError):
    """A successor sealed this writer: it may neither publish nor ack any more."""


class WriterBrokenError(JournalError):
    """An earlier publish of this writer failed; open a new writer, which seals this one."""


class JournalFullError(WriterBrokenError):
    """The bound on what the stream may hold leaves no room for a store, and it may not wait."""


class DamagedBlockError(JournalError):
    """A block fails its checksum or cannot be parsed."""


class NewerBlockError(DamagedBlockError):
    """A block of a newer format version: it is sound, and this version cannot read it."""


class MissingBlockError(JournalError):
    """A range was asked for that the journal no longer, or not yet, holds."""


class UnreadableRecordError(JournalError):
    """A sound record that cannot be made a Python value: its date is after the year 9999, say."""


class CheckpointError(PenstockError):
    """Base of what the checkpoint location's logs raise."""


class LogFormatError(CheckpointError):
    """A log file is torn, altered, or was written by a newer version."""


class LogGapError(CheckpointError):
    """A batch id is missing between two others in a log."""


class RecoveryMismatchError(CheckpointError):
    """The program no longer fits what the checkpoint location holds."""


class ConcurrentDriverError(CheckpointError):
    """Another driver uses this checkpoint location."""


class KafkaError(PenstockError):
    """A broker refused a request, failed, or did not answer in time."""


class KafkaDataLossError(KafkaError):
    """Records that a batch takes are no longer in their topic."""


class KafkaFencedError(KafkaError):
    """Another producer took over a partition of an exactly-once sink: this one writes no more."""


class SinkError(PenstockError):
    """A sink cannot write a batch: it holds a later one, or lost what was to become this one."""


class ReceiverError(PenstockError):
    """A receiver failed or cannot be placed."""


class StreamingError(PenstockError):
    """A streaming program was used against its life cycle."""


class BadRecordError(StreamingError):
    """A program's parser refused a record; see ``parse`` for what else can be done with those."""


class BatchFailedError(StreamingError):
    """A batch's job raised; the batch stays uncommitted and runs again after a restart."""

    def _causes(self) -> list[str]:
        """See PenstockError; what Spark raises is a trace, of which the message has the root."""
        return [] if "\n" in str(self.cause) else super()._causes()


class SourceChangedError(StreamingError):
    """A file that a batch takes was changed or removed before the batch was done."""

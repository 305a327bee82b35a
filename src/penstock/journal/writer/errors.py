"""The errors that end a writer, each with its meaning for unacked records."""

from __future__ import annotations

from penstock.errors import (
    AlreadyExistsError,
    FencedError,
    JournalError,
    JournalFullError,
    PenstockError,
    WriterBrokenError,
)
from penstock.journal.block import BlockFooter
from penstock.journal.layout import WriterId
from penstock.journal.stream import JournalStream


class WriterErrors:
    """Makes the errors of one writer."""

    def __init__(self, stream: JournalStream, writer: WriterId) -> None:
        self._stream = stream
        self._writer = writer
        self.ids = {"stream": stream.name, "writer": str(writer)}

    def taken(self, path: str, footer: BlockFooter, cause: AlreadyExistsError) -> JournalError:
        """Return the error of a publish of a block that found its name taken.

        By a successor, which publishes seals alone in this epoch; or, if a block is there, by this
        writer: drivers of object stores repeat a create whose answer was lost.
        """
        try:
            is_sealed = self._stream.footer(self._writer, footer.start_offset).sealed
        except PenstockError:
            is_sealed = True  # whoever cannot tell publishes nothing more
        if not is_sealed:
            return self.broken("publish block", cause, path)
        error = FencedError(
            "a successor sealed this writer",
            operation="publish block",
            path=self._stream.storage.uri(path),
            ids=self.ids,
            hint="another attempt of this receiver is running; stop this one. No acked record is "
            "lost",
        )
        error.__cause__ = cause
        return error

    def broken(
        self, operation: str, cause: BaseException, path: str | None = None
    ) -> WriterBrokenError:
        """Return the error of any other failure."""
        error = WriterBrokenError(
            "the writer broke; the source has to resend unacked records",
            operation=operation,
            path=path and self._stream.storage.uri(path),
            ids=self.ids,
            hint="open a new writer, which seals this one and continues",
        )
        error.__cause__ = cause
        return error

    def again(self, error: JournalError, operation: str) -> JournalError:
        """Return the error that ended the writer, for a later call."""
        repeated = type(error)(
            error.message, operation=operation, path=error.path, ids=self.ids, hint=error.hint
        )
        repeated.__cause__ = error
        return repeated

    def closed(self, operation: str) -> WriterBrokenError:
        """Return the error of a call to a writer that is closed, or being closed."""
        return WriterBrokenError("the writer is closed", operation=operation, ids=self.ids)

    def abandoned(self) -> WriterBrokenError:
        """Return the error of every call after the writer was abandoned."""
        return WriterBrokenError("the writer was abandoned", operation="abandon", ids=self.ids)

    def journal_full(self, operation: str) -> JournalFullError:
        """Return the error of a store or publish that may not wait for the bounds any longer."""
        return JournalFullError(
            "the receiver has reached its bound on the journal, and has to end",
            operation=operation,
            path=self._stream.storage.uri(self._stream.name),
            ids=self.ids,
            hint="the source has to resend unacked records; `penstock journal ls` shows "
            "which consumer lags",
        )

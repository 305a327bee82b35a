"""The driver's side of ``bad_records``: what tasks refused is counted and logged."""

from __future__ import annotations

import logging
from typing import Any, Literal, cast, get_args

from pyspark import Accumulator, SparkContext

from penstock.clock import iso_time
from penstock.errors import ConfigError
from penstock.journal.bad_records.dead_letters import DeadLetterFolder, folder_name
from penstock.journal.bad_records.parsing import AddRefusals, DeadLetters, Drop, Refusals
from penstock.model import OffsetRange
from penstock.storage import Storage

_log = logging.getLogger(__name__)

BadRecords = Literal["fail", "drop", "dead_letter"]
"""The handling of a record that a parser or decoder refuses."""


class RefusedRecords:
    """The records of a stream that tasks refuse.

    Args:
        operation: who refuses, for errors.
        stream: the name of the stream.
        bad_records: what happens with them.

    Raises:
        ConfigError: ``bad_records`` is none of its values, or the stream's name leaves no room for
            that of its dead letters.
    """

    def __init__(self, operation: str, stream: str, bad_records: BadRecords) -> None:
        choices = get_args(BadRecords)
        if bad_records not in choices:
            raise ConfigError(
                f"bad_records is {bad_records!r}",
                operation=operation,
                ids={"stream": stream},
                hint=f"use one of {', '.join(choices)}",
            )
        if bad_records == "dead_letter":
            folder_name(stream)
        self.bad_records = bad_records
        self._stream = stream
        self._dead: DeadLetterFolder | None = None
        self._tally: Accumulator[dict[OffsetRange, Refusals]] | None = None

    def begin(self, sc: SparkContext, journal: Storage) -> None:
        """Begin a run.

        Raises:
            ConfigError: a stream of the journal has the name of the folder of dead letters.
        """
        if self.bad_records == "dead_letter":
            self._dead = DeadLetterFolder.create(journal, self._stream)
        self._tally = sc.accumulator({}, cast("Any", AddRefusals()))

    def on_refused(self, program: str) -> Drop | DeadLetters | None:
        """Return what tasks do with them; None to fail.

        ``program`` is the name under which the program's dead letters are stored.
        """
        assert self._tally is not None, "begin() comes first"
        if self.bad_records == "drop":
            return Drop(self._tally)
        return None if self._dead is None else DeadLetters(self._dead, self._tally, program)

    def end_batch(self, committed_ms: int) -> None:
        """Log what was refused since the last call."""
        if self._tally is None or not (found := self._tally.value):
            return
        # Tasks of later batches may add to it meanwhile.
        refusals = [found.pop(cell) for cell in list(found)]
        _log.warning(
            "Until the batch of %s the parser refused %d records of stream %s, which were %s; "
            "the first is %s",
            iso_time(committed_ms),
            sum(refusal.count for refusal in refusals),
            self._stream,
            "dropped" if self._dead is None else f"kept in {self._dead.name}",
            refusals[0].first,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dead": None, "_tally": None}

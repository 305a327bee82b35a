"""The input over a journal that `penstock ingest` or another program writes."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from penstock.driver.spark import hadoop_location
from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.existing import open_existing
from penstock.journal.retention.registration import (
    Consumer,
    StartingOffsets,
    consumer_of,
    register_consumer,
)
from penstock.journal.schema import pickles_refused
from penstock.model import check_name
from penstock.streaming.inputs.input import InputContext
from penstock.streaming.inputs.journal_input import JournalInputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class SharedJournalDStream(JournalInputDStream):
    """Records of a stream of another program; see ``StreamingContext.journalStream``."""

    needs_location = True

    def __init__(
        self,
        ssc: Program,
        stream: str,
        journal: str,
        name: str | None = None,
        consumer: str | None = None,
        starting: StartingOffsets = "earliest",
        *,
        allow_pickle: bool = False,
    ) -> None:
        if starting not in ("earliest", "latest"):
            raise ConfigError(
                f"startingOffsets is {starting!r}",
                operation="journalStream",
                hint="give 'earliest' or 'latest'",
            )
        if consumer is not None:
            check_name("consumer", consumer)
        found = open_existing(hadoop_location(journal), stream, allow_pickle)
        if found.format.kind == "pickle" and not allow_pickle:
            raise pickles_refused(path=found.storage.uri(stream), ids={"stream": stream})
        super().__init__(ssc, stream if name is None else name)
        self._format = found.format
        self._stream = stream
        self._url = found.storage.url  # absolute, also after a restart from another folder
        self._consumer = consumer
        self._starting = starting
        self._allow_pickle = allow_pickle

    @property
    def format(self) -> RecordFormat:
        """The format when the program was defined."""
        return self._format

    def open_stream(self, context: InputContext) -> JournalStream:
        """Return the stream, which must be the same as when the program was defined.

        Raises:
            ConfigError: it is missing, or holds records of another schema.
        """
        found = open_existing(self._url, self._stream, self._allow_pickle)
        if found.format != self.format:
            raise ConfigError(
                f"stream {self._stream!r} holds records of {found.format!r}, and was one of "
                f"{self.format!r}",
                operation="open stream",
                path=found.storage.uri(self._stream),
                ids={"stream": self._stream},
                hint="another stream took its name: start with a new checkpoint location",
            )
        return found

    def register(self, stream: JournalStream, context: InputContext) -> Consumer:
        """Register under the given name, or one that belongs to this checkpoint location."""
        owner = f"{self.name}-{context.location_id}"
        return register_consumer(
            stream,
            self._consumer or consumer_of(stream, owner) or self._default_name(owner),
            owner,
            starting=self._starting,
            begun=context.start is not None,
            location=context.location_url,
            settle=partial(self.settle_begin, context),
        )

    def _default_name(self, owner: str) -> str:
        """Return the application's name, and the beginning of what tells its locations apart."""
        application = _NOT_IN_NAMES.sub("-", self.ssc.sparkContext.appName or "").strip("-._")
        return f"{application[:40] or 'spark'}-{owner[: len(self.name) + 9]}"[:128]

"""The input of a program's own receivers: the stream of the journal that they write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from penstock.driver.feed import ReceiverFeed, named_receivers, shared_format
from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.retention.registration import Consumer, register_consumer
from penstock.receivers import Receiver
from penstock.streaming.inputs.input import InputContext
from penstock.streaming.inputs.journal_input import JournalInputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program

_CONSUMER = "streaming"


class ReceiverInputDStream(JournalInputDStream):
    """Records that receivers push into the journal of the program's checkpoint location.

    A subclass implements ``getReceiver``, or gives the receivers to this constructor.

    Args:
        ssc: the program.
        receiver: one receiver, or several that share the stream; each has a writer (``r0``, ``r1``,
            ...) and a Spark task of its own. The same instance may be given several times. None
            for what ``getReceiver`` returns.
        name: the stream's name in the journal and in the offsets.

    Raises:
        ConfigError: the arguments are not receivers, or their schemas differ.
    """

    kind = "receiver"
    is_pushed = True

    def __init__(
        self,
        ssc: Program,
        receiver: Receiver | Sequence[Receiver] | None = None,
        name: str | None = None,
    ) -> None:
        self._given = receiver
        if type(self).getReceiver is ReceiverInputDStream.getReceiver:
            _ = self.format  # refuses what is wrong here, where it was given
        super().__init__(ssc, name)

    def getReceiver(self) -> Receiver | Sequence[Receiver]:
        """Return one receiver, or several that share the stream.

        Called once on the driver, when the program first needs it, at the latest at its start; so
        an override may use what its constructor sets. Several receivers must be of one schema.

        Source: ``org.apache.spark.streaming.dstream.ReceiverInputDStream``.

        Raises:
            ConfigError: there is none.
        """
        if self._given is None:
            raise ConfigError(
                f"{type(self).__name__} has no receiver",
                operation="make receiver stream",
                hint="implement getReceiver(), or give a receiver to the constructor",
            )
        return self._given

    @cached_property
    def receivers(self) -> dict[str, Receiver]:
        """The receivers, by the names of their writers."""
        return named_receivers(self.getReceiver())

    @property
    def receiver_count(self) -> int:
        """How many receivers share the input's rate."""
        return len(self.receivers)

    @property
    def feed(self) -> ReceiverFeed:
        """The receivers, and the stream that they write."""
        return ReceiverFeed(self.receivers, self.journal)

    @cached_property
    def format(self) -> RecordFormat:
        """How the receivers' records are stored."""
        return shared_format(list(self.receivers.values()))

    def open_stream(self, context: InputContext) -> JournalStream:
        """Return the stream in the checkpoint location; creates it if it does not exist."""
        return JournalStream.create(context.journal, self.name, self.format)

    def register(self, stream: JournalStream, context: InputContext) -> Consumer:
        """Register as the owner of the journal, regardless of earlier programs."""
        return register_consumer(
            stream,
            _CONSUMER,
            context.location_id,
            begun=context.start is not None,
            take_over=True,
            location=context.location_url,
            settle=partial(self.settle_begin, context),
        )

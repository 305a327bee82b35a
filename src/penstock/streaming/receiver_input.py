"""The input behind a program's own receivers: a stream of the journal that they write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.retention.registration import Consumer, register_consumer
from penstock.receivers import Receiver
from penstock.streaming.journal_input import JournalInputDStream, JournalPlace

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["ReceiverInputDStream"]

_CONSUMER = "streaming"


class ReceiverInputDStream(JournalInputDStream):
    """Records that receivers push into the journal of the program's checkpoint location.

    Args:
        ssc: the program.
        receiver: one receiver, or several that share the stream; each has a writer (``r0``, ``r1``,
            ...) and a Spark task of its own. The same instance may be given several times.
        name: the stream's name in the journal and in the offsets.

    Raises:
        ConfigError: what is given are no receivers, or their schemas differ.
    """

    kind = "receiver"

    def __init__(
        self,
        ssc: StreamingContext,
        receiver: Receiver | Sequence[Receiver],
        name: str | None = None,
    ) -> None:
        several = (receiver,) if isinstance(receiver, Receiver) else tuple(receiver)
        self.receivers = {f"r{place}": each for place, each in enumerate(several)}
        """The receivers, by the names of their writers."""
        self.receiver_count = len(several)
        super().__init__(ssc, _shared_format(several), name)

    def open_stream(self, place: JournalPlace) -> JournalStream:
        """Return the stream in the checkpoint location, made if it is not there yet."""
        return JournalStream.create(place.storage, self.name, self.format)

    def register(self, stream: JournalStream, place: JournalPlace, *, begun: bool) -> Consumer:
        """Register as the program to which the journal belongs, whatever ran there before."""
        return register_consumer(stream, _CONSUMER, place.location_id, begun=begun, take_over=True)


def _shared_format(receivers: Sequence[Receiver]) -> RecordFormat:
    formats = [RecordFormat(receiver.schema) for receiver in receivers]
    if not formats or any(other != formats[0] for other in formats):
        found = ", ".join(map(repr, formats)) or "no receivers"
        raise ConfigError(
            f"receivers of one stream store records of one schema, and these are {found}",
            operation="make receiver stream",
            hint="give at least one receiver; make a stream of its own for each schema",
        )
    return formats[0]

"""Decodes keys and values in tasks; what a decoder refuses goes the way that ``bad_records`` says.

As in ``penstock.journal.bad_records.parsing``, a task decodes whole cells before it gives their
records on. A cell is 1024 offsets of a partition, counted from 0, and tasks' ranges begin and end
with cells (``CELL``) or with the batch. So what is refused in a cell is the same whenever a batch
runs, and dead letters are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.errors import BadRecordError
from penstock.journal.bad_records.parsing import Refusal
from penstock.kafka.losses import loss_partition
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.reader import Decode
from penstock.kafka.records import KafkaRecord
from penstock.model import OffsetRange

CELL = 1024
"""Offsets."""

OnRefusedRecords = Callable[[OffsetRange, Sequence[Refusal]], None]
"""Is called with a cell, and what was refused in it."""


@dataclass(frozen=True)
class Decoding:
    """Decodes the records of a range."""

    key: Decode
    value: Decode
    on_refused: OnRefusedRecords

    def __call__(self, wanted: KafkaRange, records: Iterator[KafkaRecord]) -> Iterator[KafkaRecord]:
        """Return the decoded records; raises what ``on_refused`` raises."""
        partition = loss_partition(wanted.name)
        for number, cell in groupby(records, lambda record: record.offset // CELL):
            decoded: list[KafkaRecord] = []
            refused: list[Refusal] = []
            for record in cell:
                self._decode(record, decoded, refused)
            if refused:
                self.on_refused(OffsetRange(partition, number * CELL, (number + 1) * CELL), refused)
            yield from decoded

    def _decode(
        self, record: KafkaRecord, decoded: list[KafkaRecord], refused: list[Refusal]
    ) -> None:
        raw = key = record.key
        try:
            if self.key is not None and key is not None:
                key = self.key(key)
            raw = value = record.value
            if self.value is not None and value is not None:
                value = self.value(value)
        except MemoryError:
            raise  # it says nothing of the record
        except Exception as error:
            refused.append(Refusal(record.offset, error, raw))
        else:
            decoded.append(record._replace(key=key, value=value))


def fail(cell: OffsetRange, refused: Sequence[Refusal]) -> None:
    """Fail the task, and with it the batch, for the first record.

    Raises:
        BadRecordError: always.
    """
    first = refused[0]
    raise BadRecordError(
        f"a decoder refused record {first.offset} of {cell.partition}: {first}; "
        f"it begins with {first.excerpt}",
        operation="decode",
        ids={"partition": cell.partition, "offset": first.offset},
        hint='fix the decoder, or choose bad_records="dead_letter" or "drop"',
    )

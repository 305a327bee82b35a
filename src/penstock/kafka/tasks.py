"""What the tasks of a batch do. Classes, so that they pickle by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.kafka.decoding import Decoding
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.pass_over import PassOver
from penstock.kafka.reader import read_batches, read_records
from penstock.kafka.records import KafkaRecord
from penstock.workers import freeze_imports


@dataclass(frozen=True)
class ReadRecords:
    """Task: ranges to records."""

    settings: Mapping[str, Any] = field(repr=False)  # with secrets
    decoding: Decoding | None = None
    pass_over: PassOver | None = None

    def __call__(self, ranges: Iterable[KafkaRange]) -> Iterator[Any]:
        """Return the records; raises as ``read_records``, and what the decoders raise."""
        freeze_imports()
        return chain.from_iterable(map(self._read, ranges))

    def _read(self, wanted: KafkaRange) -> Iterator[KafkaRecord]:
        records = read_records(self.settings, [wanted], self.pass_over)
        return records if self.decoding is None else self.decoding(wanted, records)


@dataclass(frozen=True)
class ReadColumns:
    """Task: a range to Arrow batches."""

    settings: Mapping[str, Any] = field(repr=False)  # with secrets
    columns: Sequence[str]
    pass_over: PassOver | None = None

    def __call__(self, wanted: KafkaRange) -> Iterator[pa.RecordBatch]:
        """Return the batches; raises as ``read_batches``."""
        return read_batches(self.settings, [wanted], self.columns, self.pass_over)

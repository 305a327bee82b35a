"""The sources, whose process is killed at a chosen step of planning; of use in a real query."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.structured.journal.source import JournalDataSource, JournalStreamReader
from penstock.structured.kafka.source import KafkaDataSource, KafkaStreamReader
from penstock.structured.session import Session
from penstock.structured.stream_reader import PlannedStreamReader

__all__ = ["STEPS", "KilledJournal", "KilledKafka", "arm", "is_armed"]

STEPS = [
    f"{side} {call}" for call in ("latestOffset", "commit", "partitions") for side in ("to", "from")
]
"""On the way to a call of the source, or back from it to Spark."""


def arm(session: Session, step: str) -> None:
    """Have the next process that comes to a step killed there."""
    _path(session).write_text(step)


def is_armed(session: Session) -> bool:
    """Whether none was killed yet."""
    return _path(session).exists()


def _path(session: Session) -> Path:
    return Path(session.folder, "kill-at")


class _Killed(PlannedStreamReader):
    def latestOffset(self, *args: Any) -> Any:
        return self._between("latestOffset", *args)

    def commit(self, *args: Any) -> Any:
        return self._between("commit", *args)

    def partitions(self, *args: Any) -> Any:
        return self._between("partitions", *args)

    def _between(self, call: str, *args: Any) -> Any:
        self._reach(f"to {call}")
        found = getattr(super(), call)(*args)
        self._reach(f"from {call}")
        return found

    def _reach(self, step: str) -> None:
        path = _path(self._session)
        if path.exists() and path.read_text() == step:
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


class _KilledJournalReader(_Killed, JournalStreamReader):
    pass


class _KilledKafkaReader(_Killed, KafkaStreamReader):
    pass


class KilledJournal(JournalDataSource):
    """``format("penstock-killed")``."""

    @classmethod
    def name(cls) -> str:
        return "penstock-killed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = _KilledJournalReader
        return reader


class KilledKafka(KafkaDataSource):
    """``format("penstock-kafka-killed")``."""

    @classmethod
    def name(cls) -> str:
        return "penstock-kafka-killed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = _KilledKafkaReader
        return reader

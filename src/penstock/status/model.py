"""What the dashboard and the metrics show of a location. Plain, immutable values.

A location is a checkpoint location (of a DStream program or a Structured Streaming query) or a
journal. Times are milliseconds since the epoch, rates are records per second.
Everything is bounded: of what grows, the newest entries are held, and a number says how many there
are. None means that nothing tells; it never means 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.checkpoint.batch_records import JobRecord
from penstock.checkpoint.tools.next_batch import NextBatch
from penstock.journal.losses.loss_log import Loss
from penstock.model import Offsets
from penstock.rate import EndedBatch
from penstock.storage.protocols import EXCLUSIVE

MOST_BATCHES = 1000
"""So many of the newest batches are held."""
MOST_LOSSES = 100
MOST_LETTERS = 50
_WINDOW_MS = 60_000

Kind = Literal["program", "query", "journal"]
"""A DStream program, a Structured Streaming query, or a journal that ``penstock ingest`` writes."""

BatchState = Literal["running", "committed", "failed", "interrupted"]
"""Interrupted: planned and not committed, and its program has ended. It runs again at the next
start."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that wrote something of the location."""

    host: str
    pid: int
    """Another process may have it since: it says nothing of whether this one runs."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a batch takes from one input."""

    name: str
    records: int | None
    start: str
    """Where it begins, as JSON; empty at the beginning, and where that is no longer kept."""
    end: str


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """One batch. Delays are in milliseconds."""

    batch_id: int
    time_ms: int | None
    """The batch's own time."""
    state: BatchState
    is_rerun: bool
    """Whether an earlier run had planned it."""
    records: int | None
    """From all inputs."""
    scheduling_delay_ms: int | None
    """From when it was due to the start of its first job."""
    processing_ms: int | None
    """The time its jobs took; of a Structured query, from its plan to its commit."""
    total_delay_ms: int | None
    """From when it was due to the end of its last job."""
    plan_ms: int | None
    """How long it took to find and write its ranges."""
    commit_ms: int | None
    """How long it took to write its commit."""
    ended_ms: int | None
    """When its last job ended, or its commit was written."""
    inputs: tuple[BatchInput, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class InputStatus:
    """One input of a program or query."""

    name: str
    lag_records: int | None
    """Records that no batch has taken; None where only the source knows (Kafka, files)."""
    lag_ms: int | None
    """The age of the oldest of them."""
    max_rate: float | None
    """The override of an operator."""
    is_paused: bool
    rate: float | None
    """The limit of back pressure now; None without one."""
    changes: tuple[EndedBatch, ...] = ()
    """The newest decisions of back pressure, oldest first."""


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """One writer: records ``[start_offset, end_offset)`` are held, earlier ones are retired.

    If the newest block is damaged, only its start is known, and the range ends there.
    """

    writer: str
    state: Literal["open", "sealed", "damaged"]
    blocks: int
    size_bytes: int
    start_offset: int
    end_offset: int
    records: int
    lost: int
    """Skipped records in the range; not among ``records``."""
    uncommitted_bytes: int = 0
    """Bytes of the blocks that some consumer has not committed: what a bound applies to."""


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """One receiver: what it last said of itself, and what its blocks show."""

    name: str
    stream: str
    state: Literal["started", "restarting", "stopped", "dead"]
    """Dead: it did not stop, and says nothing any more (control.is_silent)."""
    writer: str
    process: Process
    changed_ms: int
    errors: int
    """In this run."""
    last_error: str | None
    listening_at: str | None
    rate: float
    """Records that it published per second, over the last minute; these are acked."""
    newest_ms: int | None
    """When its newest block was published."""
    refused: int = 0
    """Records that it sent back for its limits since it started, as it says every half a minute."""
    publish_ms: float | None = None
    """How long its newest block took to become durable; None where it does not tell."""


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One reader of a stream, which holds blocks back."""

    name: str
    offsets: Offsets
    """What it has committed."""
    lag_records: int
    lag_ms: int | None
    """The age of the oldest block with records that it has not committed; None without such."""
    committed_ms: int | None
    """When it last committed something new."""
    location: str | None
    """Its program's checkpoint location; None for plain readers."""
    process: Process | None
    is_stopped: bool = False
    """Whether its program is known to be stopped, and not to have failed."""

    def is_of(self, location: str) -> bool:
        """Whether it belongs to the program of a location."""
        return self.location is not None and _files(self.location) == _files(location)


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """A record that a program's parser refused."""

    writer: str
    offset: int
    error_type: str
    error: str
    text: str
    """The record as text, cut where it is long."""
    time_ms: int


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream of a journal."""

    name: str
    schema: str
    writers: tuple[WriterStatus, ...]
    receivers: tuple[ReceiverStatus, ...]
    consumers: tuple[ConsumerStatus, ...]
    records: int
    blocks: int
    size_bytes: int
    rate: float
    """Records published per second, over the last minute."""
    oldest_ms: int | None
    """When the oldest block that is held was published: what retention keeps."""
    uncommitted_bytes: int
    """Bytes of blocks that some consumer has not committed: what the bound applies to."""
    max_bytes: int | None
    """The sum of its receivers' bounds; None when one of them has none."""
    max_lag_records: int | None
    losses: tuple[Loss, ...]
    """The newest MOST_LOSSES, newest first."""
    lost_records: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocationStatus:
    """One location, as it was at ``read_ms``."""

    location: str
    """Its URL."""
    name: str
    kind: Kind
    read_ms: int
    process: Process | None
    """The driver that last ran; None where nothing tells."""
    is_running: bool | None
    """Whether it runs: by its lock, or by what it noted of its end; None where nothing tells."""
    spark_ui: str | None
    """The URL of its Spark UI."""
    batch_interval_ms: int | None
    batches: tuple[BatchStatus, ...]
    """Ascending, at most MOST_BATCHES."""
    earlier: int
    """How many batches are kept before those."""
    committed: int
    """The highest id of a committed batch, -1 without one."""
    inputs: tuple[InputStatus, ...]
    streams: tuple[StreamStatus, ...]
    """Of the location's own journal."""
    losses: Mapping[str, tuple[Loss, ...]]
    """By input without a journal, such as Kafka topics; of each the newest MOST_LOSSES."""
    next: NextBatch | None
    """What a start would do first."""
    problems: tuple[str, ...] = ()
    """What could not be read, and why."""
    failure: str | None = None
    """Why its newest run ended, if it failed in no batch."""
    lost_records: Mapping[str, int] = field(default_factory=dict)
    """By input without a journal: the records of all its losses."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """By stream or Kafka input: the refused records that wait for a replay."""
    letters: Mapping[str, tuple[DeadLetterStatus, ...]] = field(default_factory=dict)
    """The newest MOST_LETTERS of them, newest first."""

    @property
    def rate_in(self) -> float | None:
        """What arrives per second: in its journal, or what its batches take where it has none."""
        return sum(each.rate for each in self.streams) if self.streams else self.rate_out

    @property
    def rate_out(self) -> float | None:
        """The records per second of the batches that were committed in the last minute.

        While a batch runs, at least one that was committed counts: where batches take longer than
        the minute, it begins when the last but one ended. None if no batch tells how many it had.
        """
        if all(each.records is None for each in self.batches):
            return None
        ended = [
            (each.ended_ms, each.records or 0)
            for each in self.batches
            if each.state == "committed" and each.ended_ms is not None
        ]
        since_ms = self.read_ms - _WINDOW_MS
        if self.batches[-1].state == "running" and len(ended) > 1:
            since_ms = min(since_ms, ended[-2][0])
        recent = sum(records for ended_ms, records in ended if ended_ms > since_ms)
        return 1000 * recent / (self.read_ms - since_ms)


def _files(url: str) -> str:
    """Return a URL as Spark names these files: one program says ``s3a`` where others say ``s3``."""
    scheme, colon, rest = url.partition(":")
    protocol = EXCLUSIVE.get(scheme)
    return url if protocol is None else f"{protocol.spark_scheme}{colon}{rest}"

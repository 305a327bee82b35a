"""Every metric that penstock exports: its name, kind, labels and meaning. Plain values.

docs/metrics.md has the same list, and a test holds the two together. Names and units follow
Prometheus' conventions (base units, ``_total`` for counters), and Vector's for what passes through
a component. Labels are names that programs and operators give; nothing that records bring (keys,
topics' partitions, offsets) and nothing that counts up (batch ids, writers) is one.

Names and labels are stable: alerts and dashboards stand on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the histograms, in seconds; above these there is +Inf."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


class Histogram(NamedTuple):
    """A histogram's value: how many there were up to each of BUCKETS_S and in all, and the sum."""

    counts: Sequence[int]
    total: float


class Sample(NamedTuple):
    """One value of a metric; the labels' values are in the order of the metric's labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


CATALOG: list[Metric] = []
"""All metrics, in the order of the documentation."""


def _declare(kind: Kind, name: str, labels: str, text: str) -> Metric:
    metric = Metric(f"penstock_{name}", kind, tuple(labels.split()), text)
    CATALOG.append(metric)
    return metric


# -- the process --

BUILD_INFO = _declare("gauge", "build_info", "version", "1; the label has penstock's version.")
PROGRAM_UP = _declare(
    "gauge",
    "program_up",
    "program",
    "1 while a program or query runs, 0 after it ended with an error.",
)
LOCATION_READABLE = _declare(
    "gauge",
    "location_readable",
    "program",
    "1 if the location can be read, 0 if not: then what is read there is missing.",
)
HEALTH = _declare(
    "gauge",
    "health_level",
    "program",
    "What the dashboard says of the location: 0 ok, 1 stopped, 2 warning, 3 error.",
)
LOCATION_PROBLEMS = _declare(
    "gauge",
    "location_problems",
    "program",
    "Parts of a location that could not be read, such as entries of its logs.",
)

# -- batches, by the driver --

BATCHES = _declare(
    "counter", "batches_total", "program result", "Batches that ended: committed or failed."
)
BATCHES_RUNNING = _declare(
    "gauge", "batches_running", "program", "Batches that were planned and have not ended."
)
BATCH_INTERVAL = _declare(
    "gauge",
    "batch_interval_seconds",
    "program",
    "The batch interval, or a query's trigger interval; missing without one.",
)
SCHEDULING_DELAY = _declare(
    "histogram",
    "batch_scheduling_delay_seconds",
    "program",
    "From the first tick that a batch was due at to the start of its first job.",
)
PROCESSING = _declare(
    "histogram",
    "batch_processing_seconds",
    "program",
    "The duration of a batch's jobs; of a query's batch, from its plan to its commit.",
)
LAST_PROGRESS = _declare(
    "gauge",
    "last_progress_timestamp_seconds",
    "program",
    "When a batch was last committed, or a query last found nothing to do; at first, the start.",
)
RATE_LIMIT = _declare(
    "gauge",
    "batch_limit_records",
    "program stream",
    "The newest batch's limit for an input; missing without one.",
)
INPUT_WAITING = _declare(
    "gauge",
    "input_waiting_records",
    "program stream",
    "Records that an input had beyond the newest batch when it was planned; Kafka's, too, with "
    "those behind open transactions.",
)

# -- what passes through --

RECEIVED = _declare(
    "counter",
    "component_received_events_total",
    "program component_kind component_id",
    "Records that an input's batches took, or that a receiver stored.",
)
SENT = _declare(
    "counter",
    "component_sent_events_total",
    "program component_kind component_id",
    "Records of committed batches, or that a receiver made durable.",
)

# -- inputs and consumers, by the location --

INPUT_LAG = _declare(
    "gauge",
    "input_lag_records",
    "program stream",
    "Records that no batch has taken; missing where only the source knows.",
)
INPUT_PAUSED = _declare(
    "gauge", "input_paused", "program stream", "1 while an operator has paused the input."
)
CONSUMER_LAG = _declare(
    "gauge",
    "consumer_lag_records",
    "program stream consumer",
    "Durable records that a consumer of a stream has not committed.",
)
CONSUMER_LAG_S = _declare(
    "gauge",
    "consumer_lag_seconds",
    "program stream consumer",
    "The age of the oldest block with such records; 0 without one.",
)
CONSUMER_COMMIT = _declare(
    "gauge",
    "consumer_last_commit_timestamp_seconds",
    "program stream consumer",
    "When a consumer last committed something new; missing for plain readers.",
)

# -- receivers --

RECEIVER_STATE = _declare(
    "gauge",
    "receiver_state",
    "program stream receiver state",
    "1 for the state of a receiver: started, restarting, stopped, or dead (silent for 2 minutes).",
)
RECEIVER_ERRORS = _declare(
    "counter",
    "receiver_errors_total",
    "program stream receiver",
    "Errors that a receiver reported in its present run.",
)

# -- the journal --

JOURNAL_WRITTEN = _declare(
    "counter",
    "journal_written_records_total",
    "program stream",
    "Records that were ever written to a stream.",
)
JOURNAL_BYTES = _declare(
    "gauge", "journal_bytes", "program stream", "Bytes that a stream's blocks have."
)
JOURNAL_UNCOMMITTED_BYTES = _declare(
    "gauge",
    "journal_uncommitted_bytes",
    "program stream",
    "Bytes of the blocks that some consumer has not committed.",
)
JOURNAL_MAX_BYTES = _declare(
    "gauge",
    "journal_max_bytes",
    "program stream",
    "The bound of the bytes that some consumer has not committed; missing without one.",
)
JOURNAL_DAMAGED = _declare(
    "gauge",
    "journal_damaged",
    "program stream",
    "Files of a stream that were found damaged without reading every block.",
)
LOST = _declare(
    "counter",
    "lost_records_total",
    "program stream",
    "Records in the loss log: skipped, or lost before they were read.",
)
DEAD_LETTERS = _declare(
    "gauge",
    "dead_letter_records",
    "program stream",
    "Refused records of a stream that are kept as dead letters.",
)

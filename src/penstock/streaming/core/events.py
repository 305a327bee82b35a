"""The events of listeners: plain values, with the methods of Spark's Java objects.

A listener written for ``pyspark.streaming`` calls methods, ``batchInfo().processingDelay()``, which
return values in Spark's units, and -1 for unknown values. The fields have the same values in
Python's form: with the unit in the name, and None for unknown values.

Source: ``org.apache.spark.streaming.api.java.JavaStreamingListener`` and the classes beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.streaming.core.batch import InputLimit

_DESCRIPTION = "Description"


@dataclass(frozen=True, slots=True, order=True)
class Time:
    """A batch's time. Source: ``org.apache.spark.streaming.Time``."""

    ms: int

    def milliseconds(self) -> int:
        """Return it in milliseconds since the epoch."""
        return self.ms

    def __str__(self) -> str:
        return f"{self.ms} ms"


@dataclass(frozen=True, slots=True)
class StreamInputInfo:
    """The range that a batch takes from one input."""

    stream_id: int
    """The input's index among the program's inputs, from 0."""
    stream_name: str
    num_records: int
    """0 also if the input does not know the number before it reads."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def inputStreamId(self) -> int:
        """Return the input's index among the program's inputs, from 0."""
        return self.stream_id

    def numRecords(self) -> int:
        """Return the number of records, 0 if the input does not know it before it reads."""
        return self.num_records

    def metadata(self) -> Mapping[str, Any]:
        """Return the input's metadata of the batch, such as the files of a file stream."""
        return self.details

    def metadataDescription(self) -> str | None:
        """Return the description for people to read, None without one."""
        return self.details.get(_DESCRIPTION)


@dataclass(frozen=True, slots=True)
class OutputOperationInfo:
    """The progress of one output operation of a batch."""

    batch_time_ms: int
    output_id: int
    """The operation's index among the program's outputs, from 0."""
    output_name: str
    call_site: str
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    failure: str | None = None

    def batchTime(self) -> Time:
        """Return the batch's time."""
        return Time(self.batch_time_ms)

    def id(self) -> int:
        """Return the operation's index among the program's outputs, from 0."""
        return self.output_id

    def name(self) -> str:
        """Return the operation and its location in the program: ``pprint at job.py:12``."""
        return self.output_name

    def description(self) -> str:
        """Return its call stack."""
        return self.call_site

    def startTime(self) -> int:
        """Return when its job started, in milliseconds since the epoch."""
        return _or_unknown(self.start_time_ms)

    def endTime(self) -> int:
        """Return when its job ended, in milliseconds since the epoch."""
        return _or_unknown(self.end_time_ms)

    def failureReason(self) -> str | None:
        """Return the error and its traceback, None for a job that did not fail."""
        return self.failure


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """The progress of a batch. Times are milliseconds since the epoch, delays milliseconds."""

    batch_id: int
    batch_time_ms: int
    submission_time_ms: int
    processing_start_time_ms: int | None = None
    processing_end_time_ms: int | None = None
    inputs: Mapping[int, StreamInputInfo] = field(default_factory=dict)
    outputs: Mapping[int, OutputOperationInfo] = field(default_factory=dict)
    failed: bool = False
    """Whether a job failed or the batch could not be committed: it runs again after a restart."""
    limits: Mapping[str, InputLimit] = field(default_factory=dict)
    """Its limit for each input, and the reason, by the inputs' names."""
    due_time_ms: int | None = None
    """The first tick that it was planned for: a batch that waits for earlier ones takes several."""

    @property
    def num_records(self) -> int:
        """The number of its records from all inputs."""
        return sum(taken.num_records for taken in self.inputs.values())

    @property
    def scheduling_delay_ms(self) -> int | None:
        """The time that the batch waited for its first job, None while it waits."""
        start = self.processing_start_time_ms
        return None if start is None else start - self.submission_time_ms

    @property
    def late_ms(self) -> int | None:
        """From when it was due to the start of its first job, None while it waits.

        Unlike the scheduling delay it has the time for which earlier batches held back its plan.
        """
        start, due = self.processing_start_time_ms, self.due_time_ms
        return None if start is None or due is None else max(start - due, 0)

    @property
    def processing_delay_ms(self) -> int | None:
        """The duration of its jobs, None while they run."""
        start, end = self.processing_start_time_ms, self.processing_end_time_ms
        return None if start is None or end is None else end - start

    @property
    def total_delay_ms(self) -> int | None:
        """From its submission to its end, None while it runs."""
        end = self.processing_end_time_ms
        return None if end is None else end - self.submission_time_ms

    def batchTime(self) -> Time:
        """Return the batch's time."""
        return Time(self.batch_time_ms)

    def streamIdToInputInfo(self) -> Mapping[int, StreamInputInfo]:
        """Return its range of each input that reports it, by the input's id.

        As in Spark a ``queueStream`` and a ``ConstantInputDStream`` report nothing.
        """
        return self.inputs

    def submissionTime(self) -> int:
        """Return when its jobs were handed to the scheduler."""
        return self.submission_time_ms

    def processingStartTime(self) -> int:
        """Return when its first job started."""
        return _or_unknown(self.processing_start_time_ms)

    def processingEndTime(self) -> int:
        """Return when its last job ended."""
        return _or_unknown(self.processing_end_time_ms)

    def schedulingDelay(self) -> int:
        """Return the time that it waited for its first job."""
        return _or_unknown(self.scheduling_delay_ms)

    def processingDelay(self) -> int:
        """Return the duration of its jobs."""
        return _or_unknown(self.processing_delay_ms)

    def totalDelay(self) -> int:
        """Return the time from its submission to its end."""
        return _or_unknown(self.total_delay_ms)

    def numRecords(self) -> int:
        """Return the number of its records from all inputs."""
        return self.num_records

    def outputOperationInfos(self) -> Mapping[int, OutputOperationInfo]:
        """Return the progress of its output operations, by their ids."""
        return self.outputs


@dataclass(frozen=True, slots=True)
class ReceiverInfo:
    """A receiver, as known to the driver."""

    stream_id: int
    receiver_name: str
    is_active: bool
    host: str = ""
    process_id: int | None = None
    last_error: str | None = None
    last_error_time_ms: int | None = None

    def streamId(self) -> int:
        """Return its stream's index among the program's inputs, from 0."""
        return self.stream_id

    def name(self) -> str:
        """Return its class and its stream's id: ``SocketReceiver-0``.

        The receivers of a stream that has several add their own: ``SocketReceiver-0-r1``.
        """
        return self.receiver_name

    def active(self) -> bool:
        """Whether it is receiving."""
        return self.is_active

    def location(self) -> str:
        """Return the host that it runs on, empty before it runs."""
        return self.host

    def executorId(self) -> str:
        """Return its process on that host: a receiver does not know its executor's id."""
        return "" if self.process_id is None else str(self.process_id)

    def lastErrorMessage(self) -> str:
        """Return its last error, empty when it had none."""
        return self.last_error or ""

    def lastError(self) -> str:
        """Return the same as ``lastErrorMessage``."""
        return self.last_error or ""

    def lastErrorTime(self) -> int:
        """Return when it had its last error, in milliseconds since the epoch."""
        return _or_unknown(self.last_error_time_ms)


@dataclass(frozen=True, slots=True)
class StreamingListenerStreamingStarted:
    """The program was started."""

    time_ms: int

    def time(self) -> int:
        """Return when, in milliseconds since the epoch."""
        return self.time_ms


@dataclass(frozen=True, slots=True)
class _OfReceiver:
    receiver_info: ReceiverInfo

    def receiverInfo(self) -> ReceiverInfo:
        """Return the receiver."""
        return self.receiver_info


class StreamingListenerReceiverStarted(_OfReceiver):
    """A receiver started to receive."""


class StreamingListenerReceiverError(_OfReceiver):
    """A receiver had an error; if it ended, it is restarted."""


class StreamingListenerReceiverStopped(_OfReceiver):
    """A receiver stopped receiving, for now or for good."""


@dataclass(frozen=True, slots=True)
class _OfBatch:
    batch_info: BatchInfo

    def batchInfo(self) -> BatchInfo:
        """Return the batch."""
        return self.batch_info


class StreamingListenerBatchSubmitted(_OfBatch):
    """A batch is planned, and its jobs wait."""


class StreamingListenerBatchStarted(_OfBatch):
    """The first job of a batch starts."""


class StreamingListenerBatchCompleted(_OfBatch):
    """All jobs of a batch ended, and it is committed or has failed."""


@dataclass(frozen=True, slots=True)
class _OfOutputOperation:
    output_operation_info: OutputOperationInfo

    def outputOperationInfo(self) -> OutputOperationInfo:
        """Return the output operation."""
        return self.output_operation_info


class StreamingListenerOutputOperationStarted(_OfOutputOperation):
    """A job of a batch starts."""


class StreamingListenerOutputOperationCompleted(_OfOutputOperation):
    """A job of a batch ended, well or not."""


def _or_unknown(value: int | None) -> int:
    return -1 if value is None else value

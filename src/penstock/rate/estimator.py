"""The estimator contract: computes the rate of the next batches from a finished batch.

An estimator decides only: it uses no clock, no thread and no I/O. It is called once for each batch,
in the order in which batches end, by one thread at a time. It cannot know for certain which limit a
batch ran under: records that were received before a change may run after it.

Prior art: Spark's ``org.apache.spark.streaming.scheduler.rate.RateEstimator``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.conf import Conf, RateSettings


class RateEstimator(ABC):
    """Estimates the rate at which an input should deliver. Subclass it for a custom estimator."""

    settings: RateSettings | None = None
    """Of the configuration that ``create`` got: the limits of a RateController that has none."""

    @abstractmethod
    def compute(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> float | None:
        """Return the rate in records per second, None for no change.

        A batch without information yields None and never raises: a batch without records, without a
        processing delay, or with a time that is not after that of the previous batch.

        Args:
            time_ms: when the batch ended, milliseconds since the epoch.
            num_elements: its number of records.
            processing_delay_ms: how long its jobs took.
            scheduling_delay_ms: how late its first job started.
        """

    def limited_to(self, rate_records_per_s: float) -> None:  # noqa: B027 (not all need it)
        """Called with the limit that applies from now on.

        Before the first batch this is the initial rate, or the one from a checkpoint; later it is
        the result of each estimate, possibly reduced to a highest rate.
        """

    def explain(self) -> str:
        """Return the reason for the last result of ``compute`` in one line, for people to read."""
        return ""

    @staticmethod
    def create(conf: Conf, batch_interval_ms: int) -> RateEstimator:
        """Create the estimator that ``spark.streaming.backpressure.rateEstimator`` names.

        ``pid`` (the default), ``fit``, or the import path of a callable that takes
        ``(conf, batch_interval_ms)``, the configuration as a mapping, and returns a RateEstimator.

        Args:
            conf: Spark's configuration, ``ssc.conf`` or a mapping of names to values.
            batch_interval_ms: length of a batch; ``ssc.graph.batch_interval_ms`` of a program.

        Source: ``org.apache.spark.streaming.scheduler.rate.RateEstimator.create``.

        Raises:
            ConfigError: a setting is out of range, or the path is not that of an estimator.
        """
        from penstock.rate.create import create_estimator  # its estimators import this module

        return create_estimator(conf, batch_interval_ms)

"""The estimator contract: from one finished batch to the rate of those that follow.

An estimator is a pure decision maker: no clock, no thread, no I/O. It is called once for each batch
that ended, in the order of their ends, by one thread at a time. Which batches ran under which limit
it cannot know for sure: what was received before a change runs after it.

Prior art: Spark's ``org.apache.spark.streaming.scheduler.rate.RateEstimator``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.conf import Conf

__all__ = ["RateEstimator"]


class RateEstimator(ABC):
    """Estimates the rate at which an input should deliver. Subclass it to bring one's own."""

    @abstractmethod
    def compute(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> float | None:
        """Return the rate in records per second, None for no change.

        A batch that tells nothing yields None and never raises: one without records or without a
        processing delay, or whose time is not after that of the batch before it.

        Args:
            time_ms: when the batch ended, milliseconds since the epoch.
            num_elements: how many records it had.
            processing_delay_ms: how long its jobs took.
            scheduling_delay_ms: how long it was late when its first job started.
        """

    def limited_to(self, rate_records_per_s: float) -> None:  # noqa: B027 (not all need it)
        """Told which limit is in force from now on.

        Before the first batch it is the initial rate, or the one that a checkpoint kept; later what
        came of each estimate, which a highest rate may have cut.
        """

    def explain(self) -> str:
        """Return in one line why the last ``compute`` answered as it did, for people to read."""
        return ""

    @staticmethod
    def create(conf: Conf, batch_interval_ms: int) -> RateEstimator:
        """Make the estimator that ``spark.streaming.backpressure.rateEstimator`` names.

        ``pid`` (the default), ``fit``, or the import path of a callable that takes
        ``(conf, batch_interval_ms)``, the configuration as a mapping, and returns a RateEstimator.

        Args:
            conf: Spark's configuration, ``ssc.conf`` or a mapping of names to values.
            batch_interval_ms: length of a batch; ``ssc.graph.batch_interval_ms`` of a program.

        Source: ``org.apache.spark.streaming.scheduler.rate.RateEstimator.create``.

        Raises:
            ConfigError: a setting is out of range, or the path leads to no estimator.
        """
        from penstock.rate.create import create_estimator  # its estimators import this module

        return create_estimator(conf, batch_interval_ms)

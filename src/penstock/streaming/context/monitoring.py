"""What a program shows of itself: its dashboard, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.conf import StreamingSettings
from penstock.metrics import BatchMetrics, exporter_for, serve_metrics
from penstock.status import SharedStatus
from penstock.streaming.core.events import (
    BatchInfo,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchSubmitted,
)
from penstock.streaming.core.listener import ListenerBus, StreamingListener
from penstock.ui import Dashboard, dashboard_of_driver


class BatchListener(StreamingListener):
    """Counts the batches of a program."""

    def __init__(self, batches: BatchMetrics) -> None:
        self._batches = batches

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Count its records as received."""
        info = batchSubmitted.batch_info
        limits = {
            stream: limit.records
            for stream, limit in info.limits.items()
            if limit.records is not None
        }
        waiting = {stream: limit.waiting_records for stream, limit in info.limits.items()}
        self._batches.planned(_records(info), limits, waiting)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Count its records as sent if it is committed."""
        info = batchCompleted.batch_info
        if info.failed:
            self._batches.failed(info.late_ms, info.processing_delay_ms)
        else:
            self._batches.committed(_records(info), info.late_ms, info.processing_delay_ms)


class Monitoring:
    """The dashboard and the metrics of a program, from its start to ``close``.

    The dashboard has /metrics if prometheus-client is installed. At a port of their own the metrics
    are served where the settings name one.

    Raises:
        ConfigError: the metrics cannot be served at their port; see MetricsServer.
    """

    def __init__(
        self,
        settings: StreamingSettings,
        program: str,
        interval_ms: int,
        location: str,
        bus: ListenerBus,
    ) -> None:
        exporter = exporter_for(settings.metrics)
        if exporter is not None:
            batches = BatchMetrics(program, interval_ms)
            exporter.add_program(batches)
            exporter.add_locations(SharedStatus([location]), program=program)
            bus.add(BatchListener(batches))
        self._metrics = serve_metrics(settings.metrics, exporter)
        self._dashboard: Dashboard | None = None
        if settings.ui.enabled:
            self._dashboard = dashboard_of_driver(settings.ui, [location], exporter)

    def close(self) -> None:
        """Serve neither any more."""
        for each in (self._dashboard, self._metrics):
            if each is not None:
                each.close()


def _records(info: BatchInfo) -> Mapping[str, int]:
    return {taken.stream_name: taken.num_records for taken in info.inputs.values()}

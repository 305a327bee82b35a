"""The metrics of one process, in Prometheus' format.

    batches ended ──> BatchMetrics ─┐
    a receiver ─────> its counts ───┼──> Exporter ──> /metrics
    a location's status (read) ─────┘

catalog     every metric: name, kind, labels, meaning       plain values
batches     counts of a program's batches                   plain state
locations   from a location's status to samples             pure
exporter    the sources of one process, rendered
server      serves them over HTTP
"""

from penstock.metrics.batches import BatchMetrics
from penstock.metrics.catalog import CATALOG, Metric, Sample
from penstock.metrics.exporter import Exporter
from penstock.metrics.server import MetricsServer, exporter_for, serve_metrics

__all__ = [
    "CATALOG",
    "BatchMetrics",
    "Exporter",
    "Metric",
    "MetricsServer",
    "Sample",
    "exporter_for",
    "serve_metrics",
]

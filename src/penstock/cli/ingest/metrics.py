"""/metrics of an ingest process: what its receiver took, and the state of its stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.ingest.options import IngestOptions
from penstock.conf import MetricsSettings
from penstock.errors import ConfigError
from penstock.metrics import Exporter, MetricsServer, Sample, exporter_for, serve_metrics
from penstock.metrics.catalog import RECEIVED, SENT
from penstock.receivers import ReceiverSupervisor
from penstock.status import SharedStatus

_log = logging.getLogger(__name__)
_PROGRAM = "ingest"
_TRY_AGAIN_S = 0.5


class Counts:
    """What the receiver of an ingest process stored, through one supervisor after the other."""

    exporter: Exporter | None = None
    """Shows it, if it is shown."""

    def __init__(self, stream: str, receiver: str) -> None:
        self._id = f"{stream}/{receiver}"
        self._supervisors: list[ReceiverSupervisor] = []

    def follow(self, supervisor: ReceiverSupervisor) -> ReceiverSupervisor:
        """Count what this supervisor's receiver stores, too."""
        self._supervisors.append(supervisor)
        return supervisor

    def samples(self) -> Iterator[Sample]:
        """Yield what was stored, and what of it is durable."""
        counts = [each.counts for each in self._supervisors]
        labels = (_PROGRAM, "receiver", self._id)
        yield Sample(RECEIVED, labels, sum(stored for stored, _ in counts))
        yield Sample(SENT, labels, sum(durable for _, durable in counts))


@contextmanager
def serve_counts(options: IngestOptions, *, waits: bool) -> Iterator[Counts]:
    """Serve the metrics of an ingest process while the block runs, if they have a port.

    The dashboard has them too; without either there are none.

    Args:
        options: where.
        waits: whether an earlier process may still have the port: then it is taken when it is free.

    Raises:
        ConfigError: they cannot be served; see MetricsServer.
    """
    counts = Counts(options.stream, options.receiver)
    is_shown = options.metrics.port is not None or options.ui_port is not None
    counts.exporter = exporter = exporter_for(options.metrics) if is_shown else None
    if exporter is not None:
        exporter.add(counts, counts.samples)
        status = SharedStatus([options.journal])
        exporter.add_locations(status, program=_PROGRAM, stream=options.stream)
    server = _Server(options.metrics, exporter)
    server.open(waits=waits)
    try:
        yield counts
    finally:
        server.close()


class _Server:
    def __init__(self, settings: MetricsSettings, exporter: Exporter | None) -> None:
        self._settings = settings
        self._exporter = exporter
        self._server: MetricsServer | None = None
        self._closed = threading.Event()
        self._opening = threading.Thread(target=self._open_later, daemon=True)

    def open(self, *, waits: bool) -> None:
        try:
            self._open()
        except ConfigError as error:
            if not waits:
                raise
            _log.warning("%s. The process that is replaced may have it: trying again", error)
            self._opening.start()

    def close(self) -> None:
        self._closed.set()
        if self._opening.ident is not None:
            self._opening.join()
        if self._server is not None:
            self._server.close()

    def _open_later(self) -> None:
        while not self._closed.wait(_TRY_AGAIN_S):
            try:
                return self._open()
            except ConfigError:
                continue

    def _open(self) -> None:
        self._server = serve_metrics(self._settings, self._exporter)

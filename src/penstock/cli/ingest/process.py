"""The ingest process: one receiver, from its start to its drain.

Its life::

    check what can never work -> claim a run -> take over (seal earlier epochs) -> receive
        a signal, or a command to stop       -> stop the source, publish, ack, seal         status 0
        a second signal                      -> end at once, as kill -9      status 128 + signal
        a later process of that name         -> end, that one continues               status 3
        an earlier one that slept and woke   -> seal its writer in turn; it ends, as its run is over
        another receiver claimed its parts   -> continue with a new writer
        no room, and not to wait             -> publish, seal                         status 4

It watches no parent: it continues when the shell or the service manager that started it ends.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.cli.ingest.options import IngestOptions
from penstock.cli.log import log_to_stderr
from penstock.conf import MetricsSettings, UiSettings
from penstock.errors import ConfigError, FencedError, LogFormatError
from penstock.journal import JournalStream, RecordFormat
from penstock.metrics import Exporter, MetricsServer, Sample, exporter_for, serve_metrics
from penstock.metrics.catalog import RECEIVED, SENT
from penstock.receivers import (
    Command,
    Receiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    claim_run,
    newest_run,
    poll_interval_ms,
    read_status,
    uncaught_errors_to,
)
from penstock.receivers.descriptors import raise_descriptor_limit
from penstock.status import SharedStatus
from penstock.storage import open_storage
from penstock.ui import dashboard_of_driver

_log = logging.getLogger(__name__)
_PROGRAM = "ingest"
_TRY_AGAIN_S = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_ingest(receiver: Receiver, options: IngestOptions) -> None:
    """Run a receiver until it has to stop.

    Raises:
        ConfigError: the journal cannot be used, the stream holds records of another schema, or the
            receiver cannot start on this host (its port is taken, say).
        FencedError: another process took over.
        JournalFullError: a bound is reached, and the source must not wait.
        PenstockError: another error ended it.
    """
    log_to_stderr(logging.INFO)
    raise_descriptor_limit()
    storage = open_storage(options.journal)
    stream = JournalStream.create(storage, options.stream, RecordFormat(receiver.schema))
    settings = ReceiverSettings(
        compression=options.compression,
        poll_ms=poll_interval_ms(storage.url),
        bounds=options.bounds,
        when_full=options.when_full,
    )
    has_predecessor = _has_predecessor(stream, options.receiver)  # it may hold ports, and ends
    if not has_predecessor:
        receiver.checkStart()
    counts = Counts(options.stream, options.receiver)
    exporter = _exporter(options, counts)
    with (
        _metrics(options.metrics, exporter, waits=has_predecessor),
        _dashboard(options, exporter),
    ):
        run = claim_run(stream, options.receiver, uuid.uuid4().hex, Command())
        _run(ReceiverTask(receiver, stream, options.receiver, run, settings), counts)


def _run(task: ReceiverTask, counts: Counts) -> None:
    stream, supervisor = task.stream, counts.follow(_supervisor(task))
    stopping = threading.Event()

    def drain(signal_name: str) -> None:
        stopping.set()
        supervisor.stop(f"got {signal_name}", None)

    with (
        _drain_on_signals(drain),
        uncaught_errors_to(lambda *told: supervisor.thread_failed(*told)),
    ):
        while True:
            try:
                end = supervisor.run()
                break
            except FencedError:
                if newest_run(stream, task.name) != task.run:
                    raise
                _log.warning(
                    "Another process sealed this one's writer: one of an earlier run that woke up, "
                    "or a receiver that took over parts of the source. Continuing with a new writer"
                )
                supervisor = counts.follow(_supervisor(task))
                if stopping.is_set():
                    raise
    if end == "superseded":
        raise _superseded(stream, task.name)


def _supervisor(task: ReceiverTask) -> ReceiverSupervisor:
    return ReceiverSupervisor(task, parent=_no_parent)


class Counts:
    """What the receiver of an ingest process stored, through one supervisor after the other."""

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


def _exporter(options: IngestOptions, counts: Counts) -> Exporter | None:
    """Return the exporter of /metrics and of the dashboard; None without either."""
    if options.metrics.port is None and options.ui_port is None:
        return None
    if (exporter := exporter_for(options.metrics)) is not None:
        exporter.add(counts, counts.samples)
        status = SharedStatus([options.journal])
        exporter.add_locations(status, program=_PROGRAM, stream=options.stream)
    return exporter


@contextmanager
def _metrics(
    settings: MetricsSettings, exporter: Exporter | None, *, waits: bool
) -> Iterator[None]:
    """Serve /metrics while the block runs, if it has a port.

    ``waits`` says that an earlier process may have the port: then it is taken when it is free.

    Raises:
        ConfigError: it cannot be served; see MetricsServer.
    """
    closed = threading.Event()
    servers: list[MetricsServer | None] = []

    def open_later() -> None:
        while not servers and not closed.wait(_TRY_AGAIN_S):
            with suppress(ConfigError):
                servers.append(serve_metrics(settings, exporter))

    opening = threading.Thread(target=open_later, daemon=True)
    try:
        servers.append(serve_metrics(settings, exporter))
    except ConfigError as error:
        if not waits:
            raise
        _log.warning("%s. The process that is replaced may have it: trying again", error)
        opening.start()
    try:
        yield
    finally:
        closed.set()
        if opening.ident is not None:
            opening.join()
        for server in filter(None, servers):
            server.close()


@contextmanager
def _dashboard(options: IngestOptions, exporter: Exporter | None) -> Iterator[None]:
    served = None
    if options.ui_port is not None:
        # The process that this one takes over from may have the port: then the next one is tried.
        settings = UiSettings(port=options.ui_port)
        served = dashboard_of_driver(settings, [options.journal], exporter)
    try:
        yield
    finally:
        if served is not None:
            served.close()


def _has_predecessor(stream: JournalStream, receiver: str) -> bool:
    """Whether another process of this name seems to run on this host, by its status.

    Another program may have its process id: then ports are waited for that are free.
    """
    try:
        said = read_status(stream, receiver)
    except LogFormatError:  # the supervisor writes it again
        return False
    if said is None or said.state == "stopped" or said.pid == os.getpid():  # 1 in a container
        return False
    if said.host != socket.gethostname():
        return False
    try:
        os.kill(said.pid, 0)
    except (ProcessLookupError, OverflowError):  # a damaged file may name any number
        return False
    except PermissionError:
        pass  # another user's
    return True


def _no_parent() -> int:
    return 0


def _superseded(stream: JournalStream, receiver: str) -> FencedError:
    return FencedError(
        "another process with this receiver's name took over",
        operation="ingest",
        path=stream.storage.uri(stream.name),
        ids={"stream": stream.name, "receiver": receiver},
        hint="no acked record is lost; to receive in both, give each its own --receiver name",
    )


@contextmanager
def _drain_on_signals(drain: Callable[[str], None]) -> Iterator[None]:
    """Call ``drain`` with the name of the first signal; the second ends the process at once.

    For the main thread only. A closed terminal sends SIGHUP; under nohup it stays ignored. A thread
    reads signals from a pipe, so the process reacts whatever its main thread is doing: a handler in
    Python would run only between two of its steps, and might interrupt it while it holds a lock.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    watched = [each for each in _SIGNALS if not (nohup and each is signal.SIGHUP)]
    before = {each: signal.signal(each, lambda *_: None) for each in watched}
    watcher = threading.Thread(
        target=_watch_signals, args=(reading, drain), name="penstock-signals", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(wakeup_before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch_signals(reading: int, drain: Callable[[str], None]) -> None:
    draining = False
    while numbers := os.read(reading, 64):
        for number in numbers:
            if number not in _SIGNALS:
                continue
            name = signal.Signals(number).name
            if draining:
                _log.warning(
                    "%s again: ending at once; the source has to resend unacked records", name
                )
                os._exit(128 + number)
            draining = True
            _log.info("%s: stopping the source, then publishing buffered records", name)
            drain(name)

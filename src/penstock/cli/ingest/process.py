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
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.ingest.metrics import Counts, serve_counts
from penstock.cli.ingest.options import IngestOptions
from penstock.cli.ingest.signals import drain_on_signals
from penstock.cli.log import log_to_stderr
from penstock.conf import UiSettings
from penstock.errors import FencedError, LogFormatError
from penstock.journal import JournalStream, RecordFormat
from penstock.metrics import Exporter
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
from penstock.storage import open_storage
from penstock.ui import dashboard_of_driver

_log = logging.getLogger(__name__)


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
    with (
        serve_counts(options, waits=has_predecessor) as counts,
        _dashboard(options, counts.exporter),
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
        drain_on_signals(drain),
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

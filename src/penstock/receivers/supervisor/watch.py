"""Influences on a receiver from outside its process: commands, its parent, a later attempt."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.errors import FencedError, ReceiverError, StorageError, UnsharedPathError
from penstock.patience import Patience
from penstock.receivers.control import Command, control_folder, newest_run, read_command
from penstock.receivers.supervisor.events import Event
from penstock.receivers.supervisor.status import StatusReport
from penstock.receivers.task import ReceiverTask


class Watch:
    """Polls files and the parent process for one attempt of a receiver.

    Args:
        task: what runs.
        status: says whether a later attempt took over.
        parent: tells the parent process.
        parent_pid: the process that this one works for, and so its parent as long as that lives.
        monotonic_s: measures for how long the storage fails.
    """

    def __init__(
        self,
        task: ReceiverTask,
        status: StatusReport,
        parent: Callable[[], int],
        parent_pid: int,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task = task
        self._status = status
        self._parent = parent
        self._parent_pid = parent_pid
        self._patience = Patience(
            f"Receiver {task.name} of stream {task.stream.name} keeps its last command", monotonic_s
        )
        self._effective: Command | Event | None = None

    def first_command(self) -> Command | Event:
        """Return the command that this attempt was started by, or the event that it is to end.

        Raises:
            UnsharedPathError: there is none, so this process does not see the driver's files.
            StorageError: it cannot be read.
        """
        self._effective = self._read()
        if self._effective is None:
            raise UnsharedPathError(
                "the receiver cannot see its command from the driver",
                operation="start receiver",
                path=self._task.stream.storage.url,
                ids=self._task.ids,
                hint="call checkpoint() with a path that driver and executors share",
            )
        return self._effective

    def poll(self) -> Command | Event:
        """Return the effective command, or the event that it ends the receiver.

        Raises:
            ReceiverError: the parent process is gone, and no other waits for this receiver; or the
                command is gone.
            StorageError: control files could not be read for STORAGE_PATIENCE_S.
            FencedError: a later attempt runs.
        """
        if self._parent() != self._parent_pid:
            raise ReceiverError(
                "the executor of this receiver died",
                operation="run receiver",
                ids=self._task.ids,
                hint="no action is needed: the driver starts the receiver on another executor",
            )
        command = self._read_patiently()
        if command is None:
            raise ReceiverError(
                "the command file of this receiver is gone",
                operation="run receiver",
                path=self._task.stream.storage.uri(control_folder(self._task.stream)),
                ids=self._task.ids,
                hint="do not delete control files; the next start of the receiver writes its "
                "command again",
            )
        if isinstance(command, Command) and self._status.refresh():
            raise FencedError(
                "a later attempt of this receiver is running",
                operation="run receiver",
                ids=self._task.ids,
                hint="no action is needed: it sealed this attempt's writer, which can publish "
                "nothing more",
            )
        return command

    def _read_patiently(self) -> Command | Event | None:
        """Read the command; while the storage fails, the previous command stays effective.

        This is safe for any time, because the journal decides who may publish. But a receiver that
        cannot be stopped must not outlive its run for ever.
        """
        try:
            self._effective = self._read()
        except StorageError as e:
            self._patience.bear(e)
        else:
            self._patience.recovered()
        return self._effective

    def _read(self) -> Command | Event | None:
        stream, name, run = self._task.stream, self._task.name, self._task.run
        command = read_command(stream, name, run)
        if command is not None:
            return Event("commanded", "commanded") if command.stop else command
        newest = newest_run(stream, name)
        if newest is not None and newest > run:
            return Event("superseded", f"run {newest} took this receiver over")
        return None

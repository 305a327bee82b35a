"""What bears on a receiver from outside its process: orders, its parent, a later attempt."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import FencedError, ReceiverError, UnsharedPathError
from penstock.receivers.control import Order, control_folder, read_order
from penstock.receivers.supervisor.events import Event, in_force
from penstock.receivers.supervisor.status import StatusReport
from penstock.receivers.task import ReceiverTask

__all__ = ["Watch"]


class Watch:
    """Looks at files and at the parent process for one attempt of a receiver.

    Args:
        task: what runs.
        status: says whether a later attempt took over.
        parent: tells the process that this one works for; it is not to change.
    """

    def __init__(self, task: ReceiverTask, status: StatusReport, parent: Callable[[], int]) -> None:
        self._task = task
        self._status = status
        self._parent = parent
        self._parent_pid = parent()

    def first_order(self) -> Order:
        """Return the order that this attempt was started by.

        Raises:
            UnsharedPathError: it is not there, so this process does not see the driver's files.
        """
        order = read_order(self._task.stream, self._task.name)
        if order is None or order.run != self._task.run:
            raise UnsharedPathError(
                "the receiver does not see the driver's order for it",
                operation="start receiver",
                path=self._task.stream.storage.url,
                ids=self._task.ids,
                hint="give checkpoint() a path that driver and executors share",
            )
        return order

    def look(self) -> Order | Event:
        """Return the order in force, or the event that it ends the receiver.

        Raises:
            ReceiverError: the parent is gone, nobody waits for this receiver any more; or the order
                is.
            FencedError: a later attempt runs.
        """
        if self._parent() != self._parent_pid:
            raise ReceiverError(
                "the executor that this receiver belongs to is gone",
                operation="run receiver",
                ids=self._task.ids,
                hint="nothing to do: the driver starts the receiver on another executor",
            )
        found = read_order(self._task.stream, self._task.name)
        if found is None:
            raise ReceiverError(
                "the order that this receiver runs by is gone",
                operation="run receiver",
                path=self._task.stream.storage.uri(control_folder(self._task.stream)),
                ids=self._task.ids,
                hint="leave the folder alone; who starts the receiver again writes the order anew",
            )
        order = in_force(found, self._task.run)
        if isinstance(order, Event):
            return order
        if self._status.look():
            raise FencedError(
                "a later attempt of this receiver runs",
                operation="run receiver",
                ids=self._task.ids,
                hint="nothing to do: it sealed this one's writer, which can publish nothing more",
            )
        return order

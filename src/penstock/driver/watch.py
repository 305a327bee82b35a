"""What the tracker tells of its receivers, and what they say themselves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from penstock.errors import PenstockError
from penstock.receivers import ReceiverTask, Status, read_status

_log = logging.getLogger(__name__)


class ReceiverWatch(Protocol):
    """Is told of the receivers of a run, by several threads."""

    def begin(self, tasks: Sequence[ReceiverTask]) -> None:
        """Take that these receivers will be started."""

    def task_failed(self, task: ReceiverTask, error: str, now_ms: int) -> None:
        """Take that a receiver's Spark task, and so its process, ended with an error."""

    def end(self) -> None:
        """Take that no receiver of the run will be started any more."""


def status_of_run(task: ReceiverTask) -> Status | None:
    """Return the status of this run's receiver, None when it has said none."""
    try:
        status = read_status(task.stream, task.name)
    except PenstockError as e:
        names = task.stream.name, task.name
        _log.warning("The status of receiver %s/%s cannot be read: %s", *names, e)
        return None
    return status if status is not None and status.run == task.run else None

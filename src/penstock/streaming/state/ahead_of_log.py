"""State of batches that the offset log does not have: a restart refuses it.

Entries of the log may be deleted to go back to an earlier batch. Their records are read again then,
in batches of later times, and state that has them already would count them twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.clock import iso_time
from penstock.errors import RecoveryMismatchError

__all__ = ["check_state_is_planned"]


def check_state_is_planned(operator: str, files: Mapping[int, str], planned_ms: int) -> None:
    """Check that no state is later than ``planned_ms``, the newest batch in the offset log.

    Args:
        operator: whose state it is.
        files: its files by the times of their batches, as people find them.
        planned_ms: 0 or below if the log has no batch.

    Raises:
        RecoveryMismatchError: some is; names the files.
    """
    ahead = {time_ms: path for time_ms, path in files.items() if time_ms > max(planned_ms, 0)}
    if ahead:
        raise RecoveryMismatchError(
            f"the state of operator {operator!r} is of {iso_time(max(ahead))}, and the newest "
            f"batch in the offset log is of {iso_time(planned_ms)}",
            operation="recover state",
            ids={"operator": operator},
            hint="restore the entries that the offset log lacks; when they were deleted to go "
            f"back, delete the files of their state: {', '.join(ahead.values())}",
        )

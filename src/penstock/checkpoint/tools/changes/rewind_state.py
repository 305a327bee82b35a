"""What a rewind does to the state of a query of Spark: it goes back, too, or the rewind is refused.

The batch that runs next begins from the version of its own id, so the id is chosen such that the
copies are above all versions that exist (penstock.checkpoint.tools.changes.state_back). Of the
batches that are appended only the last has the state: the versions below it are parts of the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.tools.changes.files import CHECKSUM, new_file
from penstock.checkpoint.tools.changes.plan import CopyOf, FileChange
from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.changes.state_back import (
    EMPTY_SNAPSHOT,
    copied_files,
    first_free_version,
    obstacle,
    with_checksums,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.checks.state import (
    check_empty_files,
    check_operator,
    check_partitions,
)
from penstock.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class StateRewind:
    """The batch that runs next, and what has to be there as its state."""

    next_id: int
    changes: tuple[FileChange, ...] = ()
    words: str | None = None
    """What happens to the state; None for a query without."""


def plan_state(
    checkpoint: Checkpoint,
    conf: Mapping[str, Any],
    batch_id: int | None,
    *,
    lowest: int,
    drop: bool = False,
) -> StateRewind:
    """Return what lets a batch begin from the state at the end of another one.

    Args:
        checkpoint: the location.
        conf: the settings that the query has.
        batch_id: the batch at whose end the state is; None for a point that is the end of none.
        lowest: the batch that runs next has this id, or a later one.
        drop: empty the state instead.

    Raises:
        CheckpointError: the query has state that cannot be taken there.
    """
    operators = checkpoint.operators()
    if not operators:
        return StateRewind(lowest)
    names = ", ".join(info.name if info else state.operator for state, info in operators)
    if batch_id is None and not drop:
        raise _stays(
            checkpoint,
            names,
            "state is kept for the ends of batches only (--drop-state empties it)",
        )
    version = 0 if drop or batch_id is None else batch_id + 1
    states = [state for state, _ in operators]
    if (problem := obstacle(states, version, conf)) is not None:
        raise _stays(checkpoint, names, problem)
    for state, info in operators:
        found = (*check_empty_files(state, version), *check_operator(state, info, version))
        for finding in check_partitions(state, info, version) if drop else found:
            if finding.severity == "error":
                raise _stays(checkpoint, names, f"{finding.path}: {finding.what}")
    next_id = max(lowest, first_free_version(states, version))
    changes = tuple(
        change
        for path, copy in copied_files(states, version, next_id)
        for change in _copy(checkpoint, path, copy)
    )
    copies = sum(not each.path.endswith(".crc") for each in changes)
    words = f"the state ({names}) goes back to the end of batch {batch_id}: {copies} files"
    if drop:
        words = f"the state ({names}) is empty from then on: {copies} empty snapshots"
    return StateRewind(next_id, changes, words)


def _copy(checkpoint: Checkpoint, path: str | None, copy: str) -> Iterator[FileChange]:
    if path is None:
        yield from new_file(checkpoint, copy, EMPTY_SNAPSHOT, "an empty state")
        return
    for source, target in with_checksums(path, copy):
        if source in checkpoint.files:
            why = f"a copy of {source}" if source == path else CHECKSUM
            yield FileChange(target, None, CopyOf(source), why)


def _stays(checkpoint: Checkpoint, names: str, why: str) -> CheckpointError:
    return refusal(
        checkpoint,
        f"the query has state ({names}) that cannot be taken there: {why}",
        "as it is, the state holds already what would be read again: start the query on a new"
        " location, from the offsets that `inspect --batch N` shows",
    )

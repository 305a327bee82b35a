"""``repair``: what ``validate`` finds and can be fixed without a choice.

    found                                              fix
    -------------------------------------------------  ---------------------------------------------
    temporary files; checksums whose file is gone      removed
    newest entry of the offset log torn, not committed  removed: the batch is planned anew
    commit of the newest batch torn                    removed: the batch runs again, same offsets
    commits of batches without offsets, after the      removed: these batches are planned anew, from
    newest that has some                               the end of that batch

In each case the query processes records again, and loses none. Everything else has to be decided by
someone who knows the query, and is left: files of newer versions, files that do not fit their
checksum (one of the two is right), older entries, a missing id, state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.checkpoint.tools.batches import batch_paths
from penstock.checkpoint.tools.changes.apply import interrupted_plan
from penstock.checkpoint.tools.changes.files import removed_file
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.preview import Preview
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.leftovers import check_names
from penstock.checkpoint.tools.checks.log_entries import is_torn, penstock_checks, torn_checks
from penstock.checkpoint.tools.validation import find_damage

__all__ = ["plan_repair"]

_COMMAND = "repair"


def plan_repair(place: str | os.PathLike[str]) -> Plan:
    """Plan to fix what can be fixed safely; what is left is said in the plan's meaning.

    Raises:
        ConfigError: there is no checkpoint location.
        CheckpointError: a change by another command is not finished.
        StorageError: it cannot be read.
    """
    checkpoint = Checkpoint.open(place)
    if (begun := interrupted_plan(checkpoint, _COMMAND)) is not None:
        return begun
    is_own = any(map(is_of_penstock, checkpoint.batches(checkpoint.planned[-2:])))
    found = (
        *_leftovers(checkpoint, is_own=is_own),
        *_commits_ahead(checkpoint),
        *_torn_newest(checkpoint, is_own=is_own),
    )
    changes = tuple({change.path: change for change in found}.values())
    planned, committed = checkpoint.planned, checkpoint.committed
    return Plan(
        location=checkpoint.url,
        command=_COMMAND,
        meaning=tuple(_meaning(checkpoint, changes)),
        changes=changes,
        newest=(max(planned, default=-1), max(committed, default=-1)),
    )


def _meaning(checkpoint: Checkpoint, changes: tuple[FileChange, ...]) -> Iterator[str]:
    after = Preview(checkpoint, changes)
    left = [each for each in find_damage(after) if each.severity != "note"]
    if not changes:
        yield "there is nothing that can be fixed without a choice"
    elif not any(each.severity == "error" for each in left):
        (newest,) = after.batches(after.planned[-1:]) or (None,)
        following = after.next_batch(newest)
        again = ", again with the same offsets" if following.rerun else ""
        yield f"batch {following.first} runs next{again}; no record is lost"
    for each in left:
        yield f"left as it is: {each.path}: {each.what}. To fix: {each.fix}"


def _leftovers(checkpoint: Checkpoint, *, is_own: bool) -> Iterator[FileChange]:
    for finding in check_names(checkpoint.files.keys(), is_penstock=is_own):
        name = finding.path.rpartition("/")[2]
        if name.startswith(".") or name.endswith(".crc"):
            yield from removed_file(checkpoint, finding.path, finding.what)


def _commits_ahead(checkpoint: Checkpoint) -> Iterator[FileChange]:
    """Yield the removal of commits after the newest batch that has offsets, newest first."""
    if not checkpoint.planned:
        return
    last = checkpoint.planned[-1]
    for batch_id in reversed([each for each in checkpoint.committed if each > last]):
        why = f"batch {batch_id} has no offsets: it is planned anew, after batch {last}"
        yield from removed_file(checkpoint, batch_paths(batch_id)[1], why)


def _torn_newest(checkpoint: Checkpoint, *, is_own: bool) -> Iterator[FileChange]:
    """Yield the removal of the newest batch's torn entry: its commit's, else its offsets'."""
    if not checkpoint.planned:
        return
    newest = checkpoint.planned[-1]
    offsets_path, commit_path = batch_paths(newest)
    checks = penstock_checks(checkpoint.storage) if is_own else torn_checks()
    contents = checkpoint.read([offsets_path, commit_path])
    torn = {
        path
        for path, data in contents.items()
        if isinstance(data, bytes) and is_torn(checks, path, data)
    }
    follows = newest == 0 or newest - 1 in checkpoint.planned
    if torn == {commit_path}:
        yield from removed_file(checkpoint, commit_path, f"it is torn: batch {newest} runs again")
    elif torn == {offsets_path} and commit_path not in contents and follows:
        why = f"it is torn: batch {newest} is planned anew, with what has come since"
        yield from removed_file(checkpoint, offsets_path, why)

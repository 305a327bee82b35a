"""``repair``: what ``validate`` finds and can be fixed without a choice.

    found                                              fix
    -------------------------------------------------  ---------------------------------------------
    temporary files; checksums whose file is gone      removed
    newest entry of the offset log torn, or altered:
      its batch not committed                          removed: the batch is planned anew
      its batch committed                              the batch before is appended, as by a rewind:
                                                       its records are read by batches of new ids
    commit of the newest batch torn, or altered        removed: the batch runs again, same offsets
    commits of batches without offsets, after the      removed: these batches are planned anew, from
    newest that has some                               the end of that batch

In each case the query processes records again, and loses none, but for a sink that skips the ids it
has seen: a batch that is planned anew has other records than the one that such a sink may have. If
the sink is Spark's file sink and is named, its log is read, and such a batch gets a new id instead.
An exactly-once sink of a penstock program refuses such a batch at each start: where it has one for
certain, as the batch is committed, nothing is fixed.

An entry is altered that does not fit its checksum. If it is the checksum that was altered, or the
entry was edited by hand, its batch is processed again, too: what was edited is in the undo file.

Everything else has to be decided by someone who knows the query, and is left: files of newer
versions, other files that do not fit their checksum, older entries, a missing id, state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.checkpoint.tools.batches import batch_paths
from penstock.checkpoint.tools.changes.apply import interrupted_plan
from penstock.checkpoint.tools.changes.files import removed_file
from penstock.checkpoint.tools.changes.hold import check_not_barred
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.preview import Preview
from penstock.checkpoint.tools.changes.rewind import plan_rewind
from penstock.checkpoint.tools.changes.rewind_own import exactly_once_outputs
from penstock.checkpoint.tools.changes.sink_log import SinkLog
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.leftovers import check_names
from penstock.checkpoint.tools.checks.log_entries import is_torn, penstock_checks, torn_checks
from penstock.checkpoint.tools.findings import Finding
from penstock.checkpoint.tools.validation import find_damage
from penstock.errors import CheckpointError, ConfigError

__all__ = ["plan_repair", "repairable_files"]

_COMMAND = "repair"
_SEEN = (
    "a sink that skips the batch ids it has seen (Spark's file sink, Delta by txnVersion) may have"
    " this batch, with other records. Give the folder of a file sink (--sink) to find out"
)

_SEEN_BY = (
    "output {} writes each batch exactly once: if its sink has this batch, it refuses the one that"
    " is planned anew, at each start. Restore the entry from a backup instead, if there is one"
)


def plan_repair(
    place: str | os.PathLike[str], *, sink: str | os.PathLike[str] | None = None
) -> Plan:
    """Plan to fix what can be fixed safely; what is left is in the plan, too.

    Args:
        place: path or URL of the checkpoint location.
        sink: the folder to which the query writes with Spark's own file sink.

    Raises:
        ConfigError: there is no checkpoint location, or no such sink.
        CheckpointError: a change by another command is not finished.
        StorageError: it cannot be read.
    """
    checkpoint = Checkpoint.open(place)
    command = _COMMAND if sink is None else f"{_COMMAND} --sink {os.fspath(sink)}"
    if (begun := interrupted_plan(checkpoint, command, sink)) is not None:
        return begun
    fixes = _find_fixes(checkpoint, sink)
    after = Preview(checkpoint, fixes.changes)
    left = tuple(each for each in find_damage(after) if each.severity != "note")
    return Plan(
        location=checkpoint.url,
        command=command,
        meaning=tuple(_meaning(after, fixes, left)),
        changes=fixes.changes,
        newest=(max(checkpoint.planned, default=-1), max(checkpoint.committed, default=-1)),
        left=left,
    )


def repairable_files(place: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the files that ``plan_repair`` would change; raises as it does."""
    checkpoint = Checkpoint.open(place)
    check_not_barred(checkpoint)
    return tuple(change.path for change in _find_fixes(checkpoint, None).changes)


class _Fixes(NamedTuple):
    changes: tuple[FileChange, ...]
    meaning: tuple[str, ...] = ()


def _find_fixes(checkpoint: Checkpoint, sink: str | os.PathLike[str] | None) -> _Fixes:
    is_own = any(map(is_of_penstock, checkpoint.batches(checkpoint.planned[-2:])))
    leftovers = tuple(_leftovers(checkpoint, is_own=is_own))
    if not checkpoint.planned:
        return _Fixes(leftovers)
    newest = checkpoint.planned[-1]
    offsets_path, commit_path = batch_paths(newest)
    ahead = [each for each in checkpoint.committed if each > newest]
    torn = _torn_entries(checkpoint, newest, is_own=is_own)
    last = newest - 1 if offsets_path in torn else newest
    if torn == {commit_path} and not ahead:
        why = f"it is torn, or altered: batch {newest} runs again"
        return _Fixes(_once(leftovers, removed_file(checkpoint, commit_path, why)))
    is_planned_anew = offsets_path in torn or bool(ahead)
    if not is_planned_anew or (last >= 0 and last not in checkpoint.planned):
        return _Fixes(leftovers)
    has_run = offsets_path in torn and commit_path in checkpoint.files
    seen = sink is not None and SinkLog.open(sink).newest > last
    if (has_run or seen) and not is_own:
        return _renew(checkpoint, leftovers, last, sink)
    sinks = ", ".join(exactly_once_outputs(checkpoint)) if is_own else ""
    if has_run or (ahead and sinks):
        return _Fixes(leftovers)
    removed = [*_commits_ahead(checkpoint, ahead, newest)]
    if offsets_path in torn:
        why = f"it is torn, or altered: batch {newest} is planned anew, with what has come since"
        removed += removed_file(checkpoint, offsets_path, why)
    seen_by_query = () if is_own or sink is not None else (_SEEN,)
    return _Fixes(_once(leftovers, removed), (_SEEN_BY.format(sinks),) if sinks else seen_by_query)


def _renew(
    checkpoint: Checkpoint,
    leftovers: tuple[FileChange, ...],
    last: int,
    sink: str | os.PathLike[str] | None,
) -> _Fixes:
    """Return what has batches of new ids read what came after the last sound batch."""
    try:
        plan = plan_rewind(checkpoint.url, to_batch=last, sink=sink)
    except (ConfigError, CheckpointError) as error:
        why = f"its records would have to be read by a batch of a new id: {error.message}"
        return _Fixes(leftovers, (f"batch {last + 1} is left as it is, for {why}",))
    return _Fixes(_once(leftovers, plan.changes), plan.meaning)


def _once(*changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Return changes of which no two are of the same file; the later one counts."""
    return tuple({each.path: each for some in changes for each in some}.values())


def _leftovers(checkpoint: Checkpoint, *, is_own: bool) -> Iterator[FileChange]:
    for finding in check_names(checkpoint.files.keys(), is_penstock=is_own):
        name = finding.path.rpartition("/")[2]
        if name.startswith(".") or name.endswith(".crc"):
            yield from removed_file(checkpoint, finding.path, finding.what)


def _commits_ahead(
    checkpoint: Checkpoint, ahead: Sequence[int], newest: int
) -> Iterator[FileChange]:
    """Yield the removal of commits after the newest batch that has offsets, newest first."""
    for batch_id in reversed(ahead):
        why = f"batch {batch_id} has no offsets: it is planned anew, after batch {newest}"
        yield from removed_file(checkpoint, batch_paths(batch_id)[1], why)


def _torn_entries(checkpoint: Checkpoint, newest: int, *, is_own: bool) -> set[str]:
    """Return the entries of the newest batch that are torn, or do not fit their checksum."""
    checks = penstock_checks(checkpoint.storage) if is_own else torn_checks()
    altered = checkpoint.altered(batch_paths(newest), is_strict=is_own)
    return {*altered} | {
        path
        for path, data in checkpoint.read(batch_paths(newest)).items()
        if isinstance(data, bytes) and is_torn(checks, path, data)
    }


def _meaning(after: Preview, fixes: _Fixes, left: Sequence[Finding]) -> Iterator[str]:
    if not fixes.changes:
        yield "there is nothing that can be fixed without a choice"
    elif not any(each.severity == "error" for each in left):
        (newest,) = after.batches(after.planned[-1:]) or (None,)
        following = after.next_batch(newest)
        again = ", again with the same offsets" if following.rerun else ""
        yield f"batch {following.first} runs next{again}; no record is lost"
    yield from fixes.meaning
    for each in left:
        yield f"left as it is: {each.path}: {each.what.rstrip('.')}. To fix: {each.fix}"

"""Where a query stands before a change.

New entries take the form of the newest ones, which have to be sound. A newest entry that is torn or
altered is passed over, and the one before it taken: when a query of Spark starts, it reads the
newest two entries of the offset log and the newest one of the commit log, and these will be new.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.log_files import CommitFile, OffsetFile
from penstock.checkpoint.tools.batches import Batch, batch_ids_in, batch_paths, parse_batch
from penstock.checkpoint.tools.checkpoint import Checkpoint, describe_kept, is_of_penstock
from penstock.checkpoint.tools.checks.checksums import check_sidecar, sidecar_of
from penstock.checkpoint.tools.checks.leftovers import check_folders
from penstock.checkpoint.tools.checks.log_entries import is_torn, spark_checks, torn_checks
from penstock.errors import CheckpointError, ConfigError, StorageError

_OPERATION = "plan change of checkpoint location"


@dataclass(frozen=True, slots=True)
class Position:
    """The newest batch whose offsets can be read, and the entries whose form new ones take."""

    newest: Batch
    offsets: OffsetFile
    commit: CommitFile
    next_id: int
    """The first batch id that neither log has."""
    problem: str | None
    """Why the query cannot start as the location is; None if it can."""

    @property
    def is_done(self) -> bool:
        """Whether the query continues from the end of the newest batch as the location is."""
        return self.problem is None and self.newest.committed


def find_position(checkpoint: Checkpoint) -> Position:
    """Return where the query stands.

    Raises:
        CheckpointError: no batch is done, or the newest entries are none that new ones can follow.
        StorageError: an entry cannot be read.
    """
    planned, committed = checkpoint.planned, checkpoint.committed
    if not planned or not committed:
        raise refusal(
            checkpoint, "no batch was ever done", "start the query: it begins at its beginning"
        )
    contents = _newest_entries(checkpoint)
    altered = checkpoint.altered(contents, is_strict=False)
    torn = sorted(
        path
        for path, data in contents.items()
        if path in altered or is_torn(torn_checks(), path, data)
    )
    sound = [path for path in contents if path not in torn]
    offset_ids, commit_ids = (batch_ids_in(sound, log) for log in ("offsets", "commits"))
    problem = checkpoint.next_batch(parse_batch(planned[-1], contents, checkpoint.files)).problem
    unread = {batch_paths(each)[1] for each in committed[:-1]}
    if problem is None and (broken := [path for path in torn if path not in unread]):
        problem = f"{broken[-1]} cannot be read: it was cut off, or altered"
    for finding in check_folders(checkpoint.folders_in("offsets", "commits"), checkpoint.files):
        raise refusal(checkpoint, f"{finding.path}: {finding.what}", finding.fix)
    if not offset_ids or not commit_ids:
        raise _stuck(checkpoint, problem)
    newest = parse_batch(offset_ids[-1], contents, checkpoint.files)
    done = parse_batch(commit_ids[-1], contents, checkpoint.files)
    if newest.offsets is None or done.commit is None or (problem and is_of_penstock(newest)):
        raise _stuck(checkpoint, problem)
    _check_entries(checkpoint, newest.batch_id, done.batch_id)
    next_id = max(planned[-1], committed[-1]) + 1
    return Position(newest, newest.offsets, done.commit, next_id, problem)


def _newest_entries(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Return the newest two entries of both logs, as far as a start reads them."""
    paths = [
        *(batch_paths(each)[0] for each in checkpoint.planned[-2:]),
        *(batch_paths(each)[1] for each in checkpoint.committed[-2:]),
    ]
    found: dict[str, bytes] = {}
    for path, content in checkpoint.read(paths).items():
        if isinstance(content, StorageError):
            raise content
        found[path] = content
    return found


def _stuck(checkpoint: Checkpoint, problem: str | None) -> CheckpointError:
    return refusal(
        checkpoint,
        f"the query cannot start on the location as it is: {problem or 'it has just moved'}",
        "see `penstock checkpoint validate` first: it says what to do by hand",
    )


def require_done(checkpoint: Checkpoint, batch_id: int) -> tuple[OffsetFile, CommitFile]:
    """Return the entries of a batch that is done.

    Raises:
        ConfigError: the location keeps no such batch, or it is not done.
        CheckpointError: its entries cannot be read.
    """
    kept = checkpoint.done
    if batch_id not in kept:
        what = f"batch {batch_id} is not among the batches that are done and kept"
        raise misfit(checkpoint.url, what, describe_kept(kept))
    (batch,) = checkpoint.batches([batch_id]) or (None,)
    if batch is None or batch.offsets is None or batch.commit is None:
        why = batch.problems[0].message if batch and batch.problems else "its files are gone"
        raise refusal(
            checkpoint,
            f"the entries of batch {batch_id} cannot be read: {why}",
            "choose another batch",
        )
    _check_entries(checkpoint, batch_id, batch_id)
    return batch.offsets, batch.commit


def _check_entries(checkpoint: Checkpoint, planned: int, committed: int) -> None:
    """Refuse entries that Spark would refuse: what is copied from them would look sound."""
    paths = (batch_paths(planned)[0], batch_paths(committed)[1])
    contents = checkpoint.read([*paths, *map(sidecar_of, paths)])
    for path in paths:
        data, sidecar = contents.get(path, b""), contents.get(sidecar_of(path), b"")
        if isinstance(data, StorageError):
            raise data
        findings = [*spark_checks()[path.partition("/")[0]](path, data)]
        if isinstance(sidecar, bytes):
            findings += check_sidecar(path, [data], sidecar, strict=False)
        for finding in findings:
            if finding.severity == "error":
                raise refusal(checkpoint, f"{finding.path}: {finding.what}", finding.fix)


def refusal(checkpoint: Checkpoint, what: str, hint: str) -> CheckpointError:
    """Return the error of a change that the location does not allow."""
    return CheckpointError(what, operation=_OPERATION, path=checkpoint.url, hint=hint)


def misfit(url: str, what: str, hint: str) -> ConfigError:
    """Return the error of a change that was asked for wrongly."""
    return ConfigError(what, operation=_OPERATION, path=url, hint=hint)

"""Where a query of Spark stands before a change: its newest entries, which have to be sound."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.log_files import CommitFile, OffsetFile
from penstock.checkpoint.tools.batches import Batch, batch_paths
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.checks.checksums import check_sidecar, sidecar_of
from penstock.checkpoint.tools.checks.log_entries import spark_checks
from penstock.errors import CheckpointError, ConfigError, StorageError

__all__ = ["Position", "find_position", "refusal", "require_done"]

_OPERATION = "plan change of checkpoint location"


@dataclass(frozen=True, slots=True)
class Position:
    """The newest batch, and the newest entries of both logs, whose form new ones take."""

    newest: Batch
    offsets: OffsetFile
    commit: CommitFile
    is_done: bool
    """Whether the newest batch is committed."""

    @property
    def next_id(self) -> int:
        """The first batch id that was never used."""
        return self.newest.batch_id + 1


def find_position(checkpoint: Checkpoint) -> Position:
    """Return where the query stands.

    Raises:
        CheckpointError: it has no batch that is done, or cannot start as the location is.
    """
    if not checkpoint.planned or not checkpoint.committed:
        raise refusal(
            checkpoint,
            "no batch was ever done",
            "start the query: it begins at its beginning",
        )
    planned, committed = checkpoint.planned[-1], checkpoint.committed[-1]
    read = {batch.batch_id: batch for batch in checkpoint.batches([planned, committed])}
    newest, done = read.get(planned), read.get(committed)
    problem = checkpoint.next_batch(newest).problem
    if done is not None and done.commit is None and done.problems:
        problem = problem or f"{done.problems[0].path}: {done.problems[0].message}"
    if problem or newest is None or done is None or not newest.offsets or not done.commit:
        raise refusal(
            checkpoint,
            f"the query cannot start on the location as it is: {problem or 'it has just moved'}",
            "see `penstock checkpoint validate` and `penstock checkpoint repair` first",
        )
    _check_entries(checkpoint, planned, committed)
    return Position(newest, newest.offsets, done.commit, is_done=planned == committed)


def require_done(checkpoint: Checkpoint, batch_id: int) -> tuple[OffsetFile, CommitFile]:
    """Return the entries of a batch that is done.

    Raises:
        ConfigError: the location keeps no such batch, or it is not done.
        CheckpointError: its entries cannot be read.
    """
    kept = checkpoint.done
    if batch_id not in kept:
        known = f"{kept[0]} to {kept[-1]}" if kept else "none"
        raise ConfigError(
            f"batch {batch_id} is not among the batches that are done and kept",
            operation=_OPERATION,
            path=checkpoint.url,
            hint=f"those are {known}; older ones are retired"
            " (spark.sql.streaming.minBatchesToRetain)",
        )
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
            findings += check_sidecar(path, data, sidecar, strict=False)
        for finding in findings:
            if finding.severity == "error":
                raise refusal(checkpoint, f"{finding.path}: {finding.what}", finding.fix)


def refusal(checkpoint: Checkpoint, what: str, hint: str) -> CheckpointError:
    """Return the error of a change that cannot be planned."""
    return CheckpointError(what, operation=_OPERATION, path=checkpoint.url, hint=hint)

"""``fork``: a copy of a location from which a second query continues, beside the first.

The copy ends with the newest batch that is done, whatever the first query does meanwhile: entries
are immutable, so a listing decides what belongs to it. It has an id of its own, by which sinks tell
the two queries apart.

A new log of Spark's file sink that begins below batch 9 would be compacted every few batches. So
batches are appended to such a copy up to there, which do no work: copies of its newest entries, and
of its state under the version with which the next batch begins.

Invariants:

1. A copy that is said to be done has every file that a query on it reads. The first query may
   retire files while they are copied; only such may be missing that precede the newest snapshot of
   their store, or the newest two entries of their log. If another one is gone, the fork fails.
2. A fork that was cut off is completed up to the batch with which it was begun, so the log of its
   sink is the same.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.barrier import last_batch_of
from penstock.checkpoint.tools.batches import Batch, batch_paths
from penstock.checkpoint.tools.changes.fill import check_free, fill_location
from penstock.checkpoint.tools.changes.hold import check_not_barred
from penstock.checkpoint.tools.changes.links import check_no_link
from penstock.checkpoint.tools.changes.plan import CopyOf, FileChange
from penstock.checkpoint.tools.changes.position import misfit, refusal
from penstock.checkpoint.tools.changes.rewind_state import StateRewind, plan_state
from penstock.checkpoint.tools.changes.sink_log import FIRST_COMPACTED, begin_sink_log
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock, parse_id
from penstock.checkpoint.tools.checks.checksums import main_name, sidecar_of
from penstock.checkpoint.tools.checks.leftovers import leftovers_in
from penstock.checkpoint.tools.offsets import is_of_journal
from penstock.checkpoint.tools.reading import read_files
from penstock.checkpoint.tools.state_files import WHOLE, parse_version
from penstock.errors import CheckpointError, StorageError
from penstock.storage import Storage, attach_storage, local_root

__all__ = ["ForkPlan", "apply_fork", "plan_fork"]

_LOGS = ("offsets", "commits")
_FILE_SINK = (
    "Spark's own file sink (format parquet, json, csv, ...) fails in a new folder that it does not"
    " know: name that folder (--sink), or use foreachBatch"
)


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """Which files are copied, and what that means."""

    location: str
    target: str
    batch_id: int
    """The newest batch that is copied; it is done."""
    files: tuple[str, ...]
    """What is copied; the metadata file is written anew."""
    size_bytes: int
    meaning: tuple[str, ...]
    appended: tuple[FileChange, ...] = ()
    """The files of batches that do no work, after the newest one."""
    sink_changes: tuple[FileChange, ...] = ()
    """With which Spark's file sink begins in a new folder."""


def plan_fork(
    place: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    sink: str | os.PathLike[str] | None = None,
) -> ForkPlan:
    """Plan a copy of a location; the query may run.

    Args:
        place: path or URL of the location.
        target: where the copy is to be.
        sink: a new folder, to which the second query writes with Spark's own file sink.

    Raises:
        ConfigError: there is no location, or the target is not empty, or in the location; or a
            query has written to the sink.
        CheckpointError: no batch is done, or it is of a penstock program, or holds a link; a fork
            that was cut off cannot be completed; or the sink needs later batches, and the query has
            state that cannot be copied for them.
    """
    checkpoint = Checkpoint.open(place)
    storage = attach_storage(target)
    _check_beside(checkpoint, storage)
    check_no_link(checkpoint)
    begun = check_free(storage, checkpoint.url)
    check_not_barred(checkpoint)
    if not checkpoint.done:
        raise refusal(checkpoint, "there is nothing to fork: no batch is done", "see `inspect`")
    last = checkpoint.done[-1] if begun is None else last_batch_of(begun)
    if last is None or last not in checkpoint.done:
        raise refusal(
            checkpoint,
            f"the fork to {storage.url} was begun at batch {last}, which is retired since",
            f"delete {storage.url} (no query starts on it as it is), and fork again",
        )
    (newest,) = checkpoint.batches([last])
    if is_of_penstock(newest):
        raise refusal(
            checkpoint,
            "a penstock program's records are in its journal, which its receivers write to",
            "a second program can read the journal of the first as a consumer of its own",
        )
    leftovers = leftovers_in(checkpoint.files)
    files = tuple(sorted(p for p in checkpoint.files if _belongs(p, last) and p not in leftovers))
    appended = StateRewind(last + 1)
    if sink is not None and last < FIRST_COMPACTED:
        copied = {path: checkpoint.files[path] for path in files}  # not what comes meanwhile
        appended = _append(Checkpoint(checkpoint.storage, copied), last)
    return ForkPlan(
        location=checkpoint.url,
        target=storage.url,
        batch_id=last,
        files=files,
        size_bytes=sum(checkpoint.files[path].size for path in files),
        meaning=tuple(_meaning(newest, appended, sink)),
        appended=appended.changes,
        sink_changes=()
        if sink is None
        else begin_sink_log(sink, appended.next_id - 1, is_begun=begun is not None),
    )


def _append(checkpoint: Checkpoint, last: int) -> StateRewind:
    """Return the batches after the last one from which a sink's log is compacted as usual."""
    (newest,) = checkpoint.batches([last])
    try:
        state = plan_state(checkpoint, newest.conf, last, lowest=FIRST_COMPACTED + 1)
    except CheckpointError as error:
        raise refusal(
            checkpoint,
            f"the log of a file sink that begins after batch {last} is compacted at every"
            f" {last + 1} batches, and the copy cannot begin with a later one: {error.message}",
            f"fork it when batch {FIRST_COMPACTED} is done; or without --sink (foreachBatch)",
        ) from error
    entries = tuple(
        FileChange(copy, None, CopyOf(path), f"the end of batch {last}")
        for batch_id in range(last + 1, state.next_id)
        for pair in zip(batch_paths(last), batch_paths(batch_id), strict=True)
        for path, copy in (pair, tuple(map(sidecar_of, pair)))
        if path in checkpoint.files
    )
    return StateRewind(state.next_id, (*state.changes, *entries))


def _meaning(
    newest: Batch, appended: StateRewind, sink: str | os.PathLike[str] | None
) -> Iterator[str]:
    last = newest.batch_id
    yield f"the copy ends with batch {last}; a query on it runs batch {appended.next_id} next"
    if appended.changes:
        yield (
            f"batches {last + 1} to {appended.next_id - 1} of the copy do no work: with smaller ids"
            " the sink's log would be compacted too often"
        )
    yield "the copy has a new id; the first query and its location stay as they are"
    yield "give the second query another sink: both write the same batch ids"
    for source, offset in newest.end_offsets.items():
        if is_of_journal(offset):
            yield (
                f"source {source} reads a journal: give the second query another consumer (the"
                " first one's is refused), and start it while the first one still retains batch"
                f" {last}"
            )
    yield _FILE_SINK if sink is None else f"Spark's file sink begins in {os.fspath(sink)}"


def apply_fork(plan: ForkPlan, on_file: Callable[[int], None] = lambda count: None) -> str:
    """Copy the files; return the copy's id. ``on_file`` is called with 1 for each.

    Raises:
        ConfigError: the target is not empty.
        CheckpointError: a file that the copy needs is gone, or another command fills the target.
        StorageError: a file cannot be copied; the same call completes the copy.
    """
    checkpoint = Checkpoint.open(plan.location)
    begun = read_files(attach_storage(plan.target), [METADATA]).get(METADATA)
    fork_id = parse_id(begun) or str(uuid.uuid4())  # an attempt that was killed has given one
    fill_location(
        plan.target,
        plan.location,
        _each(_files(checkpoint, plan, fork_id), on_file),
        last_batch=plan.batch_id,
        sink=plan.sink_changes,
    )
    return fork_id


def _each(
    files: Iterator[tuple[str, bytes]], on_file: Callable[[int], None]
) -> Iterator[tuple[str, bytes]]:
    for file in files:
        yield file
        on_file(1)


def _files(checkpoint: Checkpoint, plan: ForkPlan, fork_id: str) -> Iterator[tuple[str, bytes]]:
    first = _first_needed(plan.files)
    copies = [(path, path) for path in plan.files]
    copies += [
        (each.after.path, each.path) for each in plan.appended if isinstance(each.after, CopyOf)
    ]
    for path, copy in copies:
        content = checkpoint.read([path]).get(path)
        if isinstance(content, StorageError):
            raise content
        if content is not None:
            yield copy, content
        elif copy != path or _is_needed(path, plan.batch_id, first):
            raise refusal(
                checkpoint,
                f"{path} is gone: the query retired it while it was copied, and the copy needs it",
                f"delete {plan.target} (no query starts on it as it is) and fork again; with the"
                " query stopped nothing is retired",
            )
    for change in plan.appended:
        if isinstance(change.after, bytes):  # an empty state
            yield change.path, change.after
    metadata = dump_json({"id": fork_id}).encode()
    yield METADATA, metadata
    if local_root(plan.target) is not None:
        yield sidecar_of(METADATA), checksum_of(metadata)


def _check_beside(checkpoint: Checkpoint, target: Storage) -> None:
    """Raise ConfigError if the target is the location or in it: it would become part of it."""
    inner, outer = (
        each.url if (root := local_root(each.url)) is None else os.path.realpath(root)
        for each in (target, checkpoint.storage)
    )
    if f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/"):
        raise misfit(
            target.url,
            "the new checkpoint location is in the one that is copied",
            "give a folder beside it",
        )


def _belongs(path: str, last: int) -> bool:
    """Whether a file is of the batches up to the last one; of a source's log, all are."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return False
    if folder in _LOGS:
        batch_id = parse_batch_id(main_name(name))
        return batch_id is not None and batch_id <= last
    version = _version(path)
    return version is None or version[0] <= last + 1


def _first_needed(paths: Iterable[str]) -> dict[str, int]:
    """Return the newest version that each folder of state holds as a whole."""
    first: dict[str, int] = {}
    for path in paths:
        version = _version(path)
        if version is not None and version[1] in WHOLE:
            folder = path.rpartition("/")[0]
            first[folder] = max(version[0], first.get(folder, 0))
    return first


def _is_needed(path: str, last: int, first: Mapping[str, int]) -> bool:
    """Whether a query that continues after batch ``last`` may read a file."""
    folder, _, name = path.rpartition("/")
    if folder in _LOGS:
        return (parse_batch_id(main_name(name)) or 0) >= last - 1
    version = _version(path)
    return version is None or version[0] >= first.get(folder, 0)


def _version(path: str) -> tuple[int, str] | None:
    """Return the version and the kind of a state file, or of that of a checksum; else None."""
    folder, _, name = path.rpartition("/")
    main = main_name(name).removesuffix(".crc")
    return parse_version(main) if folder.startswith("state/") else None

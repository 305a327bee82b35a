"""``fork``: a copy of a location from which a second query continues, beside the first.

The copy ends with the newest batch that is done, whatever the first query does meanwhile: entries
are immutable, so a listing decides what belongs to it. It has an id of its own, by which sinks tell
the two queries apart.

Invariants:

1. A copy that is said to be done has every file that a query on it reads. The first query may
   retire files while they are copied; only such may be missing that precede the newest snapshot of
   their store, or the newest two entries of their log. If another one is gone, the fork fails.
2. The target is empty before, and no file in it is overwritten or removed: a folder that another
   one uses is left alone.
3. The barrier (penstock.checkpoint.tools.barrier) is there before the first file and until the last
   one is durable: no query starts on half a copy. A fork that was interrupted is not completed: its
   target is deleted by hand.
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
from penstock.checkpoint.tools.barrier import BARRIER
from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.changes.hold import check_not_barred, raise_barrier
from penstock.checkpoint.tools.changes.links import check_no_link
from penstock.checkpoint.tools.changes.position import misfit, refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.checksums import main_name, sidecar_of
from penstock.checkpoint.tools.checks.leftovers import leftovers_in
from penstock.checkpoint.tools.offsets import is_of_journal
from penstock.checkpoint.tools.state_files import WHOLE, parse_version
from penstock.errors import AlreadyExistsError, CheckpointError, ConfigError, StorageError
from penstock.storage import Storage, attach_storage, local_root, open_storage

_LOGS = ("offsets", "commits")
_OPERATION = "fork checkpoint location"
_FILE_SINK = (
    "NOT for a second query that writes with Spark's own file sink (format parquet, json, csv,"
    " ...): in a new folder that sink fails without the entries of earlier batches; use"
    " foreachBatch"
)


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """Which files are copied, and what that means."""

    location: str
    target: str
    batch_id: int
    """The newest batch that is copied; it is done."""
    files: tuple[str, ...]
    """What is copied; the metadata file is a new one."""
    size_bytes: int
    meaning: tuple[str, ...]


def plan_fork(place: str | os.PathLike[str], target: str | os.PathLike[str]) -> ForkPlan:
    """Plan a copy of a location; the query may run.

    Args:
        place: path or URL of the location.
        target: where the copy is to be.

    Raises:
        ConfigError: there is no location, or the target is not empty, or in the location.
        CheckpointError: no batch is done, or it is of a penstock program, or holds a link.
    """
    checkpoint = Checkpoint.open(place)
    storage = attach_storage(target)
    _check_beside(checkpoint, storage)
    check_no_link(checkpoint)
    if storage.list():
        raise _not_empty(storage)
    check_not_barred(checkpoint)
    if not checkpoint.done:
        raise refusal(checkpoint, "there is nothing to fork: no batch is done", "see `inspect`")
    last = checkpoint.done[-1]
    (newest,) = checkpoint.batches([last])
    if is_of_penstock(newest):
        raise refusal(
            checkpoint,
            "a penstock program's records are in its journal, which its receivers write to",
            "a second program can read the journal of the first as a consumer of its own",
        )
    leftovers = leftovers_in(checkpoint.files)
    files = tuple(sorted(p for p in checkpoint.files if _belongs(p, last) and p not in leftovers))
    return ForkPlan(
        location=checkpoint.url,
        target=storage.url,
        batch_id=last,
        files=files,
        size_bytes=sum(checkpoint.files[path].size for path in files),
        meaning=tuple(_meaning(newest)),
    )


def _meaning(newest: Batch) -> Iterator[str]:
    last = newest.batch_id
    yield f"the copy ends with batch {last}; a query on it runs batch {last + 1} next"
    yield "the copy has a new id; the first query and its location stay as they are"
    yield "give the second query another sink: both write the same batch ids"
    for source, offset in newest.end_offsets.items():
        if is_of_journal(offset):
            yield (
                f"source {source} reads a journal: give the second query another consumer (the"
                " first one's is refused), and start it while the first one still retains batch"
                f" {last}"
            )
    yield _FILE_SINK


def apply_fork(plan: ForkPlan, on_file: Callable[[int], None] = lambda count: None) -> str:
    """Copy the files; return the copy's id. ``on_file`` is called with 1 for each.

    Raises:
        ConfigError: the target is not empty.
        CheckpointError: a file that the copy needs is gone, or another one writes to the target.
        StorageError: a file cannot be copied; delete the target, and fork again.
    """
    checkpoint = Checkpoint.open(plan.location)
    storage = open_storage(plan.target)
    fork_id = str(uuid.uuid4())
    barrier = raise_barrier(storage, copy_of=plan.location)
    if [each.path for each in storage.walk("")] != [BARRIER]:  # filled, or used, since
        barrier.remove()
        raise _not_empty(storage)
    for path, data in _files(checkpoint, plan, fork_id):
        _put_file(storage, path, data)
        on_file(1)
    barrier.remove()
    return fork_id


def _put_file(storage: Storage, path: str, data: bytes) -> None:
    """Create a file; raises CheckpointError if there is one of other content."""
    try:
        storage.create(path, data)
    except AlreadyExistsError as error:
        if storage.read(path) != data:  # else the answer was lost
            raise CheckpointError(
                f"{path} was written by another one while the location was copied there",
                operation=_OPERATION,
                path=storage.url,
                hint="delete the folder (no query starts on it as it is), and fork again",
            ) from error


def _files(checkpoint: Checkpoint, plan: ForkPlan, fork_id: str) -> Iterator[tuple[str, bytes]]:
    first = _first_needed(plan.files)
    for path in plan.files:
        content = checkpoint.read([path]).get(path)
        if isinstance(content, StorageError):
            raise content
        if content is not None:
            yield path, content
        elif _is_needed(path, plan.batch_id, first):
            raise refusal(
                checkpoint,
                f"{path} is gone: the query retired it while it was copied, and the copy needs it",
                f"delete {plan.target} (no query starts on it as it is) and fork again; with the"
                " query stopped nothing is retired",
            )
    metadata = dump_json({"id": fork_id}).encode()
    yield METADATA, metadata
    if local_root(plan.target) is not None:
        yield sidecar_of(METADATA), checksum_of(metadata)


def _not_empty(storage: Storage) -> ConfigError:
    return ConfigError(
        "the new checkpoint location is not empty",
        operation=_OPERATION,
        path=storage.url,
        hint="give a folder that does not exist yet; delete one that a fork began to fill",
    )


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

"""``fork``: a copy of a location from which a second query continues, beside the first.

The copy ends with the newest batch that is done, whatever the first query does meanwhile: entries
are immutable, so a listing decides what belongs to it. It has an id of its own, by which sinks tell
the two queries apart.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.changes.fill import check_free, fill_location
from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.checksums import sidecar_of
from penstock.checkpoint.tools.checks.leftovers import check_names
from penstock.errors import StorageError
from penstock.storage import attach_storage, local_root

__all__ = ["ForkPlan", "apply_fork", "plan_fork"]

_METADATA = "metadata"
_VERSION = re.compile(r"(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)")


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """Which files are copied, and what that means."""

    location: str
    target: str
    batch_id: int
    """The newest batch of the copy; it is done."""
    files: tuple[str, ...]
    """What is copied; the metadata file is written anew."""
    size_bytes: int
    meaning: tuple[str, ...]


def plan_fork(place: str | os.PathLike[str], target: str | os.PathLike[str]) -> ForkPlan:
    """Plan a copy of a location; the query may run.

    Raises:
        ConfigError: there is no location, or the target is not empty.
        CheckpointError: no batch is done, or it is of a penstock program.
    """
    checkpoint = Checkpoint.open(place)
    storage = attach_storage(target)
    check_free(storage, checkpoint.url)
    if checkpoint.is_barred or not checkpoint.done:
        what = "a change of it is not finished" if checkpoint.is_barred else "no batch is done"
        raise refusal(checkpoint, f"there is nothing to fork: {what}", "see `inspect`")
    last = checkpoint.done[-1]
    if any(map(is_of_penstock, checkpoint.batches([last]))):
        raise refusal(
            checkpoint,
            "a penstock program's records are in its journal, which its receivers write to",
            "a second program can read the journal of the first as a consumer of its own",
        )
    leftovers = {finding.path for finding in check_names(checkpoint.files, is_penstock=False)}
    files = tuple(sorted(p for p in checkpoint.files if _belongs(p, last) and p not in leftovers))
    return ForkPlan(
        location=checkpoint.url,
        target=storage.url,
        batch_id=last,
        files=files,
        size_bytes=sum(checkpoint.files[path].size for path in files),
        meaning=(
            f"the copy ends with batch {last}; a query on it runs batch {last + 1} next",
            "the copy has a new id; the first query and its location stay as they are",
            "give the second query another sink: both write the same batch ids",
        ),
    )


def apply_fork(plan: ForkPlan) -> str:
    """Copy the files; return the copy's id.

    Raises:
        ConfigError: the target is not empty.
        StorageError: a file cannot be copied; the same call begins again.
    """
    checkpoint = Checkpoint.open(plan.location)
    fork_id = str(uuid.uuid4())
    fill_location(plan.target, plan.location, _files(checkpoint, plan, fork_id))
    return fork_id


def _files(checkpoint: Checkpoint, plan: ForkPlan, fork_id: str) -> Iterator[tuple[str, bytes]]:
    for path in plan.files:
        # Gone since: the query retired it, so a query on the copy does not need it either.
        for content in checkpoint.read([path]).values():
            if isinstance(content, StorageError):
                raise content
            yield path, content
    metadata = dump_json({"id": fork_id}).encode()
    yield _METADATA, metadata
    if local_root(plan.target) is not None:
        yield sidecar_of(_METADATA), checksum_of(metadata)


def _belongs(path: str, last: int) -> bool:
    """Whether a file is of the batches up to the last one; of a source's log, all are."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return False
    main = name.removeprefix(".").removesuffix(".crc") if name.endswith(".crc") else name
    if folder in ("offsets", "commits"):
        batch_id = parse_batch_id(main)
        return batch_id is not None and batch_id <= last
    found = _VERSION.fullmatch(main.removesuffix(".crc")) if folder.startswith("state/") else None
    return found is None or int(found[1]) <= last + 1

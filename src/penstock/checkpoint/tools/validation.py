"""``validate``: what is damaged in a checkpoint location, what that means, and what to do.

Every file of the logs is read, and everything that has a checksum beside it; the checks themselves
are pure (``checks``). A running query can be validated, too: a file that is gone when it is read
was retired meanwhile, and a finding counts if a second scan confirms it. Notes may be of files that
are just being written.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.recovery import plan_recovery
from penstock.checkpoint.rollback import rollback_hint
from penstock.checkpoint.tools.barrier import BARRIER, INTERRUPTED, ways_out
from penstock.checkpoint.tools.batches import Batch, batch_paths, parse_batch
from penstock.checkpoint.tools.checkpoint import PIECE_BYTES, Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.batches import (
    check_clocks,
    check_ids,
    check_sources,
    left_behind,
)
from penstock.checkpoint.tools.checks.checksums import (
    check_sidecar,
    check_size,
    sidecar_of,
    spark_checksum_of,
)
from penstock.checkpoint.tools.checks.leftovers import check_folders, check_names
from penstock.checkpoint.tools.checks.log_entries import (
    EntryChecks,
    check_metadata,
    check_operator_info,
    check_source_log,
    is_of_newer_version,
    penstock_checks,
    spark_checks,
)
from penstock.checkpoint.tools.checks.source_logs import (
    check_file_source,
    first_needed,
    is_file_log,
)
from penstock.checkpoint.tools.checks.state import (
    check_checkpoint_ids,
    check_empty_files,
    check_operator,
)
from penstock.checkpoint.tools.findings import Finding, Severity, worst
from penstock.checkpoint.tools.next_batch import NextBatch
from penstock.checkpoint.tools.offsets import entry_of_log, log_offset
from penstock.checkpoint.tools.operators import newest_infos
from penstock.checkpoint.tools.reading import Content
from penstock.errors import StorageError

_COMPACTED = "nothing reads it any more: a compacted entry holds what was in it"
_NOT_READ = (
    "the query starts, for it reads the newest entries only; it cannot go back to this batch, whose"
    " entry is retired in time"
)
_NO_NEED = "nothing, unless you want to go back to it: "
_AT_ONCE = 64
"""The number of files with checksums that are held at a time; larger ones are read in pieces."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found, the worst first; at most one error a file."""

    location: str
    files: int
    """The number of files that were checked."""
    is_penstock: bool
    """Whether it is of a penstock program; its journal is not among the files."""
    severity: Severity | None
    """The worst of the findings'; None when there are none."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What several checks need."""

    contents: Mapping[str, Content]
    batches: Sequence[Batch]
    planned: Sequence[int]
    committed: Sequence[int]
    is_penstock: bool
    next: NextBatch
    newest_offsets: Mapping[str, object]
    """Each source's offset in the newest entry that can be read."""
    first_needed: Mapping[str, int]
    """Of each file source, the oldest entry of its log that is still read."""


def validate(place: str | os.PathLike[str]) -> Validation:
    """Return what is wrong with a checkpoint location; no damage makes it raise.

    Args:
        place: path or URL of the location.

    Raises:
        ConfigError: there is no checkpoint location.
        StorageError: it cannot be listed.
    """
    checkpoint = Checkpoint.open(place)
    facts = _read(checkpoint)
    found = _find(checkpoint, facts)
    if worst(found) in ("warning", "error"):
        # Of a running query one folder may have been listed before a batch, and the next after it.
        later = Checkpoint.open(place)
        again = {(each.path, each.what) for each in _find(later, _read(later))}
        found = [each for each in found if (each.path, each.what) in again]
    order = ("error", "warning", "note")
    return Validation(
        location=checkpoint.url,
        files=len(checkpoint.files),
        is_penstock=facts.is_penstock,
        severity=worst(found),
        findings=tuple(sorted(found, key=lambda each: order.index(each.severity))),
    )


def _find(checkpoint: Checkpoint, facts: _Facts) -> list[Finding]:
    if checkpoint.is_barred:
        return [_unfinished_change(checkpoint)]
    found = _one_error_a_file(
        (
            *_check_metadata(checkpoint),
            *check_ids(
                facts.planned,
                facts.committed,
                facts.next,
                is_penstock=facts.is_penstock,
                way_back=_way_back(checkpoint, facts),
                left=left_behind(facts.batches),
            ),
            *_check_entries(checkpoint, facts),
            *_check_checksums(checkpoint, facts),
            *check_clocks(facts.batches),
            *check_sources(facts.batches),
            *_check_file_sources(checkpoint, facts),
            *_check_state(checkpoint, facts),
            *check_names(checkpoint.files.keys(), is_penstock=facts.is_penstock),
            *_check_folders(checkpoint, facts),
        )
    )
    if facts.is_penstock:  # its fixes are those of the driver's own errors
        return found
    back = _rewind(checkpoint, facts, {each.path for each in found if each.severity == "error"})
    return [_weighed(each, checkpoint, facts, back) for each in found]


def _weighed(finding: Finding, checkpoint: Checkpoint, facts: _Facts, back: str | None) -> Finding:
    """Return an error of Spark's logs with what to do by hand, or as a warning.

    It is a warning if no start reads the entry. ``back`` is the rewind to the last sound batch.
    """
    if finding.severity != "error" or is_of_newer_version(finding):
        return finding
    if finding.path == "offsets":  # entries that a start needs are missing
        return finding if back is None else replace(finding, fix=f"{finding.fix}; or {back}")
    log, _, name = finding.path.partition("/")
    ids = {"offsets": facts.planned[-2:], "commits": facts.committed[-1:]}.get(log, ())
    batch_id = parse_batch_id(name)
    if batch_id is None or not ids or finding.path not in facts.contents:
        return finding
    if batch_id < ids[0]:
        fix = f"{_NO_NEED}{finding.fix}"
        return replace(finding, severity="warning", meaning=_NOT_READ, fix=fix)
    way = _by_hand(log, batch_id, checkpoint, facts, back)
    return (
        finding if way is None else replace(finding, fix=f"{finding.fix}; without a backup, {way}")
    )


def _by_hand(
    log: str, batch_id: int, checkpoint: Checkpoint, facts: _Facts, back: str | None
) -> str | None:
    """Return what to do about a damaged entry that a start of Spark reads; None for nothing."""
    newest = facts.planned[-1] if facts.planned else -1
    path = f"{log}/{batch_id}"
    paths = [each for each in (path, sidecar_of(path)) if each in checkpoint.files]
    removal = f"stop the query and remove {' and '.join(paths)}"
    if log == "offsets" and batch_id == newest and batch_id not in facts.committed:
        seen = f"; if its sink skips the batch ids it has seen, {back}" if back else ""
        return f"{removal}: batch {batch_id} is planned again, with what has come since{seen}"
    if log == "commits" and batch_id == newest:
        return f"{removal}: batch {batch_id} runs again, with the same offsets"
    return back


def _rewind(checkpoint: Checkpoint, facts: _Facts, damaged: Collection[str]) -> str | None:
    """Return how a query of Spark goes back to its newest batch that is done and sound."""
    done = reversed(sorted({*facts.planned} & {*facts.committed}))
    sound = next((each for each in done if not {*batch_paths(each)} & {*damaged}), None)
    if sound is None:
        return None
    place = shlex.quote(checkpoint.url)
    return (
        f"stop the query and go back: penstock checkpoint rewind {place} --to-batch {sound} --apply"
    )


def _way_back(checkpoint: Checkpoint, facts: _Facts) -> str | None:
    """Return how a penstock program goes back to before the first entry that is missing."""
    missing = plan_recovery(facts.planned, facts.committed).missing if facts.is_penstock else ()
    return rollback_hint(checkpoint.storage, missing[0].start) if missing else None


def _read(checkpoint: Checkpoint) -> _Facts:
    paths = filter(_is_log_entry, checkpoint.files)
    contents = checkpoint.read([*paths, *newest_infos(checkpoint.files).values()])
    batches = [parse_batch(each, contents, checkpoint.files) for each in checkpoint.planned]
    is_penstock = any(map(is_of_penstock, batches))
    newest = next((each for each in reversed(batches) if each.offsets is not None), None)
    planned, committed = checkpoint.kept_ids(newest)
    offsets = newest.end_offsets if newest is not None else {}
    return _Facts(
        contents=contents,
        batches=batches,
        planned=planned,
        committed=committed,
        is_penstock=is_penstock,
        next=checkpoint.next_by_ids(newest),
        newest_offsets=offsets,
        first_needed={
            source: first_needed(_source_files(contents, source))
            for source in offsets
            if _is_file_source(source, batches, contents)
        },
    )


def _is_file_source(source: str, batches: Sequence[Batch], contents: Mapping[str, Content]) -> bool:
    """Whether a batch or the source's own log says so; one that is damaged does not."""
    logs = (contents[path] for path in contents if path.startswith(f"sources/{source}/"))
    return any(log_offset(each.end_offsets.get(source)) is not None for each in batches) or any(
        isinstance(log, bytes) and is_file_log(log) for log in logs
    )


def _is_log_entry(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if folder.startswith("sources/") and folder.count("/") == 1:
        return parse_batch_id(name.removesuffix(".compact")) is not None
    return path == METADATA or (
        folder in ("offsets", "commits") and parse_batch_id(name) is not None
    )


def _one_error_a_file(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out errors of files that have one already: the first tells more."""
    damaged: set[str] = set()
    kept = []
    for finding in findings:
        if finding.severity == "error":
            if finding.path in damaged:
                continue
            damaged.add(finding.path)
        kept.append(finding)
    return kept


def _unfinished_change(checkpoint: Checkpoint) -> Finding:
    """Return the only finding until the change is finished: files may be as before, or after."""
    return Finding(
        "error",
        BARRIER,
        INTERRUPTED,
        "no query starts on the location, of which some files may have been changed",
        ways_out(checkpoint.read_barrier(), checkpoint.storage.uri),
    )


def _check_metadata(checkpoint: Checkpoint) -> Iterator[Finding]:
    if METADATA not in checkpoint.files:
        yield Finding(
            "error",
            METADATA,
            "it is missing, and there are batches",
            "the query does not start (Spark 4.1 and later, penstock), or starts under a new id"
            " with which its sinks do not know what it wrote before",
            'restore it from a backup, or write {"id":"<uuid>"} with the id from the query\'s'
            " progress reports",
        )


def _check_entries(checkpoint: Checkpoint, facts: _Facts) -> Iterator[Finding]:
    checks = (
        penstock_checks(checkpoint.storage)
        if facts.is_penstock
        else spark_checks(facts.first_needed, _json_sources(facts.batches))
    )
    for path, content in facts.contents.items():
        if isinstance(content, StorageError):
            yield Finding(
                "error",
                path,
                f"it cannot be read: {content}",
                "the query fails when it reads this file",
                content.hint or "see the storage's own logs",
            )
        else:
            yield from _check_entry(path, content, checks, facts)


def _json_sources(batches: Sequence[Batch]) -> set[str]:
    """Return the sources of which any batch has an offset that is a JSON object or array."""
    ends = (end for batch in batches for end in batch.end_offsets.items())
    return {source for source, offset in ends if isinstance(offset, (dict, list))}


def _check_entry(path: str, data: bytes, checks: EntryChecks, facts: _Facts) -> Iterator[Finding]:
    folder = path.partition("/")[0]
    if path == METADATA:
        yield from check_metadata(path, data)
    elif folder == "state":
        yield from check_operator_info(path, data)
    elif folder == "sources":
        yield from _check_source_entry(path, data, facts)
    else:
        yield from checks[folder](path, data)


def _check_source_entry(path: str, data: bytes, facts: _Facts) -> Iterator[Finding]:
    _, source, name = path.split("/")
    offset = facts.newest_offsets.get(source)
    first = facts.first_needed.get(source)
    findings = check_source_log(path, data, is_file_source=first is not None)
    if first is not None and _id_of(name) < first:
        for each in findings:
            yield replace(each, severity="warning", meaning=_COMPACTED, fix="remove it")
    elif first is not None or offset is None or isinstance(offset, (int, dict)):
        yield from findings
    else:  # what a source keeps whose offset is none of Spark's may be of any form
        yield from (replace(each, severity="note") for each in findings)


def _id_of(name: str) -> int:
    found = parse_batch_id(name.removesuffix(".compact"))
    assert found is not None  # only such files are read
    return found


def _source_files(paths: Iterable[str], source: str) -> list[str]:
    prefix = f"sources/{source}/"
    return [path[len(prefix) :] for path in paths if path.startswith(prefix)]


def _check_checksums(checkpoint: Checkpoint, facts: _Facts) -> Iterator[Finding]:
    files = checkpoint.files
    guarded = [path for path in files if sidecar_of(path) in files]
    for some in _chunks(guarded):
        sidecars = checkpoint.read(map(sidecar_of, some))
        unread = [path for path in some if path not in facts.contents]
        large = {path for path in unread if files[path].size > PIECE_BYTES}
        contents = {**facts.contents, **checkpoint.read(p for p in unread if p not in large)}
        for path in some:
            content, sidecar = contents.get(path), sidecars.get(sidecar_of(path))
            pieces = [content] if isinstance(content, bytes) else ()
            with suppress(StorageError):  # retired since
                if isinstance(sidecar, bytes) and (pieces or path in large):
                    data = pieces or checkpoint.read_pieces(path)
                    for found in check_sidecar(path, data, sidecar, strict=facts.is_penstock):
                        yield _with_way_back(checkpoint, found) if facts.is_penstock else found
    # A hidden file is a checksum of Hadoop's, also of those that Spark makes.
    visible = (path for path in files if not path.rpartition("/")[2].startswith("."))
    summed = [path for path in visible if spark_checksum_of(path) in files]
    for path, checksum in checkpoint.read(map(spark_checksum_of, summed)).items():
        main = path.removesuffix(".crc")
        if isinstance(checksum, bytes):
            yield from check_size(main, files[main].size, checksum)


def _with_way_back(checkpoint: Checkpoint, finding: Finding) -> Finding:
    """Return a finding of a penstock program's offset log with how to go back to before it."""
    folder, _, name = finding.path.rpartition("/")
    batch_id = parse_batch_id(name) if folder == "offsets" else None
    way = None if batch_id is None else rollback_hint(checkpoint.storage, batch_id)
    return finding if way is None else replace(finding, fix=f"restore it from a backup; {way}")


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _AT_ONCE):
        yield paths[start : start + _AT_ONCE]


def _check_file_sources(checkpoint: Checkpoint, facts: _Facts) -> Iterator[Finding]:
    for source in facts.first_needed:
        newest = entry_of_log(facts.newest_offsets[source])
        names = _source_files(checkpoint.files, source)
        yield from check_file_source(source, names, -1 if newest is None else newest)


def _check_folders(checkpoint: Checkpoint, facts: _Facts) -> Iterator[Finding]:
    logs = ("offsets", "commits", *(f"sources/{source}" for source in facts.first_needed))
    yield from check_folders(checkpoint.folders_in(*logs), checkpoint.files.keys())


def _check_state(checkpoint: Checkpoint, facts: _Facts) -> Iterator[Finding]:
    operators = checkpoint.operators(facts.contents)
    version = facts.next.first
    for state, info in operators:
        yield from check_empty_files(state, version)
        yield from check_operator(state, info, version)
    before = next((each for each in facts.batches if each.batch_id == version - 1), None)
    if before is not None and before.commit is not None:
        ids = before.commit.metadata.get("stateUniqueIds")
        yield from check_checkpoint_ids([state for state, _ in operators], ids, version)

"""What ``penstock checkpoint inspect`` prints for people. Pure: facts in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from penstock.checkpoint.batch_ids import describe_ids
from penstock.checkpoint.tools import (
    BatchDiff,
    BatchFacts,
    Change,
    Inspection,
    LocationDiff,
    OperatorFacts,
    Plan,
    Problem,
    Validation,
    iso_time,
)
from penstock.checkpoint.tools.changes.files import CHECKSUM
from penstock.checkpoint.tools.offsets_text import describe_move, describe_offset, part_rows
from penstock.cli.output import counted
from penstock.cli.tables import table_lines
from penstock.status import size

_SOURCE_TITLES = ("source", "files", "size", "newest log")
_OPERATOR_TITLES = (
    "operator",
    "name",
    "state store",
    "partitions",
    "stores",
    "versions",
    "files",
    "size",
)
_FEW = 2


def inspection_lines(found: Inspection, now_ms: int) -> Iterator[str]:
    """Yield what is known of a location, newest batches last."""
    yield found.location
    yield f"{found.engine}, id {found.id or 'unknown: the metadata file tells none'}"
    yield from _next_lines(found, now_ms)
    if found.batches:
        yield ""
        yield from _batch_table(found.batches)
    if found.earlier:
        yield f"and {found.earlier} earlier (--last)"
    if found.sources:
        yield ""
        rows = [(s.source, s.files, size(s.size_bytes), s.newest or "-") for s in found.sources]
        yield from table_lines(_SOURCE_TITLES, rows, right=("files", "size"))
    if found.operators:
        yield ""
        right = ("partitions", "files", "size")
        yield from table_lines(_OPERATOR_TITLES, map(_operator_row, found.operators), right=right)
    yield from _problem_lines(found.problems)


def batch_lines(batch: BatchFacts, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield all that is known of one batch."""
    yield f"batch {batch.batch_id}: {_state(batch)}"
    yield f"  time            {batch.time or 'unknown'}"
    yield f"  took            {_duration(batch.took_ms)}"
    yield f"  watermark       {_watermark(batch.watermark_ms)}"
    yield f"  next watermark  {_watermark(batch.next_watermark_ms)}"
    yield ""
    rows = [
        (source, *row)
        for source, end in batch.offsets.items()
        for row in part_rows(batch.start_offsets.get(source), end)
    ]
    yield from table_lines(("source", "partition", "start", "end", "moved"), rows)
    if batch.conf:
        yield ""
        yield from table_lines(("conf", "value"), sorted(batch.conf.items()))
    yield from _problem_lines(problems)


def validation_lines(found: Validation) -> Iterator[str]:
    """Yield what was found, the worst first, and a line that sums it up."""
    for each in found.findings:
        yield f"{each.severity.upper()} {each.path}"
        yield f"  {each.what}"
        yield f"  this means: {each.meaning}"
        yield f"  to fix: {each.fix}"
    counts = Counter(finding.severity for finding in found.findings)
    parts = [counted(n, severity) for severity, n in counts.items()]
    yield f"{found.location}: {counted(found.files, 'file')}, {', '.join(parts) or 'sound'}"
    if found.is_penstock:
        yield "the journal is not among them: `penstock journal verify` reads its blocks"


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield which files a plan changes, and what follows; runs of files in one line each."""
    yield f"{plan.location}: {plan.command}"
    runs: dict[tuple[str, str, str], list[str]] = {}
    sums = 0
    for change in plan.changes:
        if change.why == CHECKSUM:
            sums += 1
            continue
        folder, slash, name = change.path.rpartition("/")
        why = change.why
        if folder.startswith("state/"):  # a line for each operator, which may have 200 partitions
            parts = change.path.split("/", 2)
            folder, name, why = "/".join(parts[:2]), parts[2], "the state"
        runs.setdefault((_verb(change.before, change.after), folder + slash, why), []).append(name)
    for (verb, folder, why), names in runs.items():
        if len(names) > _FEW:
            yield f"  {verb} {folder}{names[0]} to {names[-1]}, {len(names)} files  ({why})"
        else:
            yield from (f"  {verb} {folder}{name}  ({why})" for name in names)
    if sums:
        yield f"  and {counted(sums, 'checksum')} of these files"
    yield from (f"- {sentence}" for sentence in plan.meaning)


def _verb(before: object, after: object) -> str:
    if after is None:
        return "remove"
    return "create" if before is None else "replace"


def batch_diff_lines(found: BatchDiff) -> Iterator[str]:
    """Yield what is not the same in two batches."""
    rows = [
        *(_change_row("source ", each, describe_offset) for each in found.offsets),
        *(_change_row("", each, _value) for each in found.metadata),
        *(_change_row("conf ", each, _value) for each in found.conf),
    ]
    if not rows:
        yield f"batches {found.left} and {found.right} are the same"
        return
    titles = ("", f"batch {found.left}", f"batch {found.right}", "moved")
    yield from table_lines(titles, rows, right=("moved",))


def location_diff_lines(found: LocationDiff) -> Iterator[str]:
    """Yield what is not the same in two locations."""
    yield f"left   {found.left}"
    yield f"right  {found.right}"
    for what, batch_ids in (
        ("only in left", found.left_only),
        ("only in right", found.right_only),
        ("in both, with other entries", found.differing),
    ):
        if batch_ids:
            yield f"{what}: batches {describe_ids(batch_ids)}"
    if found.newest is not None:
        yield ""
        yield "the newest batches:"
        yield from batch_diff_lines(found.newest)


def _change_row(
    kind: str, change: Change, describe: Callable[[Any, Any], str]
) -> tuple[str, str, str, str]:
    move = "" if change.moved is None else f"{change.moved:+,}"
    left, right = change.left, change.right
    return (f"{kind}{change.name}", describe(left, right), describe(right, left), move)


def _value(value: Any, _: Any) -> str:
    return "-" if value is None else str(value)


def _problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems:
        yield f"UNREADABLE {problem.path}: {problem.message}"
    if problems:
        yield "`penstock checkpoint validate` tells what that means and what to do"


def _next_lines(found: Inspection, now_ms: int) -> Iterator[str]:
    following = found.next
    if following.problem:
        yield f"CANNOT START: {following.problem}"
    elif following.rerun:
        again = describe_ids(following.rerun)
        yield f"next: batch {again} with the same offsets, unless it runs now: it is not committed"
    elif following.batch_id:
        yield f"next: batch {following.batch_id}, from where batch {following.batch_id - 1} ended"
    else:
        yield "next: batch 0, the first"
    for source, records in found.lag.items():
        yield f"behind: {records:,} records of source {source}, which no batch has taken"
    newest = found.batches[-1] if found.batches else None
    if newest is not None and newest.time_ms is not None and newest.time is not None:
        yield f"newest: batch {newest.batch_id}, planned {_age(now_ms - newest.time_ms)}"


def _batch_table(batches: Sequence[BatchFacts]) -> Iterator[str]:
    sources = list(dict.fromkeys(source for batch in batches for source in batch.offsets))
    titles = (
        "batch",
        "time (UTC)",
        "state",
        "took",
        "watermark",
        *(f"source {s}" for s in sources),
    )
    rows = []
    for batch in batches:
        offsets = (_offset(source, batch) for source in sources)
        facts = (batch.time or "-", _state(batch), _duration(batch.took_ms))
        rows.append((batch.batch_id, *facts, _watermark(batch.watermark_ms), *offsets))
    yield from table_lines(titles, rows, right=("batch", "took"))


def _offset(source: str, batch: BatchFacts) -> str:
    start, end = batch.start_offsets.get(source), batch.offsets.get(source)
    step, text = describe_move(start, end), describe_offset(end, start)
    return f"{text} ({step})" if step else text


def _state(batch: BatchFacts) -> str:
    if batch.planned:
        return "committed" if batch.committed else "NOT COMMITTED"
    return "NOT PLANNED, committed"


def _operator_row(facts: OperatorFacts) -> tuple[Any, ...]:
    oldest, newest = facts.oldest_version, facts.newest_version
    versions = "-" if oldest is None else f"{oldest}..{newest}"
    few = len(facts.stores) <= _FEW
    stores = (", ".join(facts.stores) or "-") if few else f"{len(facts.stores)} stores"
    name = facts.name or "-"
    head = (facts.operator, name, facts.format, facts.partitions, stores, versions)
    return (*head, facts.files, size(facts.size_bytes))


def _watermark(time_ms: int | None) -> str:
    return (iso_time(time_ms) or str(time_ms)) if time_ms else "-"


def _duration(took_ms: int | None) -> str:
    return "-" if took_ms is None else f"{took_ms / 1000:,.1f} s"


def _age(age_ms: int) -> str:
    span = timedelta(seconds=abs(age_ms) // 1000)
    return f"{span} ago" if age_ms >= 0 else f"{span} in the future by this machine's clock"

"""``penstock checkpoint`` for the checkpoint paths of ``penstock.batched``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import typer

from penstock.batched.inspection import (
    PathInspection,
    PathValidation,
    TopicFacts,
    inspect_path,
    validate_path,
)
from penstock.batched.kept import identified_ends
from penstock.batched.layout import Rewind, checkpoint_path
from penstock.batched.rewind import apply_rewind, plan_promote, plan_rewind
from penstock.cli.options import NOT_YET
from penstock.cli.output import counted, print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.kafka.identified import TopicIds

__all__ = ["inspect_batches", "rewind_batches", "validate_batches"]

_TITLES = ("topic", "checkpoint", "kept", "partition", "done", "read")
_EXIT_STATUS = {"warning": 1, "error": 2}


def inspect_batches(location: str, *, as_json: bool) -> None:
    """Show how far each topic is done."""
    found = inspect_path(location)
    _show(found, _inspection_lines(found), as_json=as_json)


def validate_batches(location: str, *, as_json: bool) -> None:
    """Show what is damaged; exit status 1 with warnings, 2 with errors."""
    found = validate_path(location)
    _show(found, _validation_lines(found), as_json=as_json)
    if status := _EXIT_STATUS.get(found.severity or "note"):
        raise typer.Exit(status)


def rewind_batches(
    location: str,
    *,
    to_batch: int | None = None,
    offsets: Any = None,
    shift_by: int | None = None,
    settings: Mapping[str, str] | None = None,
    are_of_now: bool = True,
    apply: bool,
    as_json: bool = False,
) -> None:
    """Go to a checkpoint by its number, back by so many checkpoints, or to offsets.

    With settings the brokers are asked whether the topics are the same, and have what comes from
    there on; offsets that are given are of the topics of today, if they ``are_of_now``.
    """
    if to_batch is not None and offsets is None and shift_by is None:
        plan = plan_promote(location, to_batch)
    elif to_batch is None:
        parsed = None if offsets is None else _offsets(location, offsets)
        ids = _ids_now(settings, parsed) if parsed and are_of_now else {}
        plan = plan_rewind(location, shift_by=shift_by, offsets=parsed, topic_ids=ids)
    else:
        raise _wrong(location, "there are two ways back", "give one of them")
    if settings is not None:
        from penstock.kafka.brokers import check_topics_have  # needs confluent-kafka

        after = {topic: move.after for topic, move in plan.topics.items()}
        check_topics_have(settings, identified_ends(after))
    _show_or_apply(location, plan, apply=apply, as_json=as_json)


def _ids_now(settings: Mapping[str, str] | None, topics: Collection[str]) -> TopicIds:
    if settings is None:
        return {}
    from penstock.kafka.brokers import topic_ids  # needs confluent-kafka

    return topic_ids(settings, [*topics])


def _show_or_apply(location: str, plan: Rewind, *, apply: bool, as_json: bool) -> None:
    made = apply_rewind(location, plan) if apply else []
    if as_json:
        print_json({"plan": plan, "made": made})
        return
    for line in _plan_lines(location, plan):
        print_line(line)
    if plan.topics:
        print_line(f"made {', '.join(made)}" if apply else NOT_YET)


def _inspection_lines(found: PathInspection) -> Iterator[str]:
    yield found.location
    read = "records were read that no checkpoint has" if found.is_dirty else "none was read beyond"
    yield f"batches of Kafka topics; {read}"
    if found.is_rewinding:
        yield "a rewind was begun and is not complete: the next start completes it"
    if found.planned_batch is not None:
        yield f"exactly-once sinks began batch {found.planned_batch} last"
    yield ""
    rows = [row for each in found.topics for row in _topic_rows(each)]
    yield from table_lines(_TITLES, rows, right=_TITLES[1:])


def _topic_rows(facts: TopicFacts) -> Iterator[tuple[object, ...]]:
    newest = "none" if facts.newest is None else facts.newest
    for partition in sorted({*facts.done, *facts.read}):
        done, read = facts.done.get(partition, "-"), facts.read.get(partition, "-")
        yield facts.topic, newest, facts.kept, partition, done, read
    if not facts.done and not facts.read:
        yield facts.topic, newest, facts.kept, "-", "-", "-"


def _validation_lines(found: PathValidation) -> Iterator[str]:
    for each in found.findings:
        yield f"{each.severity.upper()} {each.path}"
        yield f"  {each.what}"
        yield f"  this means: {each.meaning}"
        yield f"  to fix: {each.fix}"
    count = len(found.findings)
    what = counted(count, "finding") if count else "sound"
    yield f"{found.location}: {counted(found.files, 'file')}, {what}"


def _plan_lines(location: str, plan: Rewind) -> Iterator[str]:
    yield location
    if plan.is_begun:
        yield "a rewind was begun and is not complete: this completes it"
    for topic, move in plan.topics.items():
        yield f"create {checkpoint_path(topic, move.number)}"
        if move.before.id not in (None, move.after.id):
            yield "  in the topic that has this name now: it was created anew"
        before, after = move.before.ends, move.after.ends
        for partition in sorted({*before, *after}):
            was, now = before.get(partition, 0), after.get(partition, 0)
            if now < was:
                yield f"  partition {partition}: offsets {now} to {was - 1} are processed again"
            elif now > was:
                yield f"  partition {partition}: offsets {was} to {now - 1} are not processed"
    if not plan.topics:
        yield "that is where it stands: nothing is to be done"


def _offsets(location: str, given: Any) -> dict[str, dict[int, int]]:
    try:
        return {t: {int(p): last + 0 for p, last in each.items()} for t, each in given.items()}
    except (AttributeError, TypeError, ValueError):
        hint = 'give the last offsets that count as done: {"topic": {"0": 5}}'
        raise _wrong(location, f"{given!r} are not offsets of topics", hint) from None


def _show(found: Any, lines: Iterator[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for line in lines:
        print_line(line)


def _wrong(location: str, what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation="rewind", path=location, hint=hint)

"""``penstock checkpoint`` for the checkpoint paths of ``penstock.batched``."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from penstock.batched.inspection import (
    PathInspection,
    TopicFacts,
    inspect_path,
    is_checkpoint_path,
)
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError

_TITLES = ("topic", "checkpoint", "kept", "partition", "done", "read")


def inspect_batches(location: str, *, as_json: bool) -> None:
    """Show how far each topic is done, and what is damaged; exit status 2 if no start is possible.

    Args:
        location: the checkpoint path.
        as_json: print JSON.
    """
    found = inspect_path(location)
    if as_json:
        print_json(found)
    else:
        for line in _lines(found):
            print_line(line)
    if any(each.severity == "error" for each in found.findings):
        raise typer.Exit(2)


def refuse_batches(location: str) -> None:
    """Refuse a checkpoint path, which a command does not change.

    Raises:
        ConfigError: it is one.
    """
    if is_checkpoint_path(location):
        raise ConfigError(
            "this is a checkpoint_path of penstock.batched, which no command changes",
            operation="change checkpoint",
            path=location,
            hint="stop the program; then delete the newest <topic>/<N>.txt of each topic to go "
            "back, or write the next one to continue anywhere else",
        )


def _lines(found: PathInspection) -> Iterator[str]:
    yield found.location
    read = "records were read that no checkpoint has" if found.is_dirty else "none was read beyond"
    yield f"batches of Kafka topics; {read}"
    yield ""
    rows = [row for each in found.topics for row in _topic_rows(each)]
    yield from table_lines(_TITLES, rows, right=_TITLES[1:])
    for finding in found.findings:
        yield f"{finding.severity.upper()} {finding.path}: {finding.what}"
        yield f"  this means: {finding.meaning}"
        yield f"  to fix: {finding.fix}"


def _topic_rows(facts: TopicFacts) -> Iterator[tuple[object, ...]]:
    newest = "none" if facts.newest is None else facts.newest
    for partition in sorted({*facts.done, *facts.read}):
        done, read = facts.done.get(partition, "-"), facts.read.get(partition, "-")
        yield facts.topic, newest, facts.kept, partition, done, read
    if not facts.done and not facts.read:
        yield facts.topic, newest, facts.kept, "-", "-", "-"

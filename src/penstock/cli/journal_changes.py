"""``penstock journal``'s commands on consumers, skipped records and dead letters.

consumers ls, consumers rm   who reads a stream, and how far; forgets one that never comes back
skip, losses                 leaves damaged records out for good; lists what was left out
replay                       feeds dead letters back into their stream
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.journal_places import (
    PathArgument,
    StreamArgument,
    names,
    open_journal,
    open_location,
    open_stream,
    open_streams,
)
from penstock.cli.options import JsonOption
from penstock.cli.output import is_shown, print_json, print_line, progress_bar
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.journal import JournalStream, remove_consumer
from penstock.journal.bad_records.dead_letters import DeadLetterFolder, source_stream
from penstock.journal.bad_records.replay import replay
from penstock.journal.losses.loss_log import Loss, read_losses, source_folder
from penstock.journal.losses.skip import check_skip, skip
from penstock.journal.retention.consumer_files import consumer_names
from penstock.model import OffsetRange
from penstock.status import ago
from penstock.status.model import ConsumerStatus
from penstock.status.streams import read_stream

consumers = typer.Typer(
    name="consumers",
    no_args_is_help=True,
    help="List a journal's consumers, and remove them.",
)
_CONSUMER_COLUMNS = ("stream", "consumer", "records behind", "last commit", "process", "location")
_LOSS_COLUMNS = ("stream", "writer", "offsets", "records", "when", "who", "reason")
_RANGE = re.compile(r"(.+):([0-9]{1,19})-([0-9]{1,19})")


# -- consumers --


@consumers.command("ls")
def list_consumers(
    path: PathArgument,
    stream: StreamArgument = None,
    as_json: JsonOption = False,
) -> None:
    """List the consumers that hold blocks back, and how many records each has yet to commit.

    Also prints the time of the last commit, the process that last wrote, and its program's
    checkpoint location; readers other than programs have none of these.
    """
    streams = open_streams(open_journal(path), stream)
    found = [read_stream(each) for each in streams]
    if as_json:
        listing = {each.name: [asdict(consumer) for consumer in each.consumers] for each in found}
        typer.echo(json.dumps(listing))
        return
    rows = [_consumer_row(each.name, one) for each in found for one in each.consumers]
    right = _CONSUMER_COLUMNS[2:3]
    for line in table_lines(_CONSUMER_COLUMNS, rows, right=right) if rows else ["no consumers"]:
        print_line(line)
    for problem in itertools.chain.from_iterable(each.problems for each in found):
        print_line(f"DAMAGED: {problem}")


def _consumer_row(stream: str, found: ConsumerStatus) -> tuple[object, ...]:
    process, committed_ms = found.process, found.committed_ms
    if process is None:
        return (stream, found.name, found.lag_records, "-", "-", "-")
    committed = (
        "none yet" if committed_ms is None else ago(committed_ms, time.time_ns() // 1_000_000)
    )
    last_writer = f"{process.pid} on {process.host}"
    return (stream, found.name, found.lag_records, committed, last_writer, found.location)


@consumers.command("rm")
def remove(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    consumer: Annotated[str, typer.Argument(help="The consumer.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a consumer that never comes back: its unread records are no longer kept for it.

    Stop it first: a running consumer registers again with its next commit, and its records may be
    retired by then.
    """
    found = open_stream(open_journal(path), stream)
    # By the names of the files: an unreadable one can also be removed.
    known = consumer_names(found)
    if consumer not in known:
        raise ConfigError(
            f"stream {stream!r} has no consumer {consumer!r}",
            operation="remove consumer",
            path=found.storage.url,
            hint=f"name one of: {', '.join(known)}" if known else "the stream has no consumers",
        )
    remove_consumer(found, consumer)
    if as_json:
        print_json({"stream": stream, "removed": consumer})
    else:
        print_line(f"removed {consumer} from {stream}")


# -- skip, losses --


def skip_records(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    records: Annotated[
        str, typer.Argument(metavar="WRITER:START-END", help="Records to skip; END is exclusive.")
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the loss log.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Skip damaged or missing records for good; readers leave them out from then on.

    Refused for records that can be read, or that may still be written.

    The stream's loss log records it; `penstock journal losses` prints the log.
    """
    found = open_stream(open_journal(path), stream)
    wanted = _parse(records)
    told = f"{wanted.count} records {records} of stream {stream}"
    if not yes and check_skip(found, wanted):
        typer.confirm(f"{told} cannot be read. Skip them for good?", abort=True)
    is_new = skip(found, wanted, reason) is not None
    if as_json:
        facts = {"writer": wanted.partition, "start": wanted.start_offset, "end": wanted.end_offset}
        print_json({"stream": stream, **facts, "records": wanted.count, "skipped_now": is_new})
    elif not is_new:
        print_line(f"{told} were skipped already")
    else:
        print_line(f"{told} are skipped")


def list_losses(
    path: PathArgument,
    stream: StreamArgument = None,
    as_json_object: JsonOption = False,
) -> None:
    """Print the records that were skipped, or lost before they were read: which, when, and why."""
    journal = open_journal(path)
    of_inputs = _losses_of_inputs(path, stream)
    of_streams = [] if stream in of_inputs else names(journal, stream)
    logs = {name: read_losses(journal, name) for name in of_streams} | of_inputs
    if as_json_object:
        entries = [_loss_json(name, loss) for name, losses in logs.items() for loss in losses]
        typer.echo(json.dumps({"journal": journal.url, "losses": entries}))
        return
    rows = [_loss_row(name, loss) for name, losses in logs.items() for loss in losses]
    for line in table_lines(_LOSS_COLUMNS, rows) if rows else ["nothing was skipped"]:
        print_line(line)


def _losses_of_inputs(path: str, only: str | None) -> dict[str, list[Loss]]:
    """Return the loss logs of inputs without a journal, such as Kafka topics."""
    location = open_location(path)
    if location is None:
        return {}
    inputs = [entry.name for entry in location.list("sources") if entry.is_folder]
    wanted = [name for name in inputs if only in (None, name)]
    logs = {name: read_losses(location, source_folder(name)) for name in wanted}
    return {name: losses for name, losses in logs.items() if losses}


def _parse(text: str) -> OffsetRange:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{text!r} is not a range of records",
            operation="skip records",
            hint="give WRITER:START-END, such as r0-00000003:1000-1250, with an exclusive end",
        )
    return OffsetRange(match[1], int(match[2]), int(match[3]))


def _loss_row(stream: str, loss: Loss) -> tuple[object, ...]:
    records = loss.records
    return (
        stream,
        records.partition,
        f"{records.start_offset}..{records.end_offset}",
        records.count,
        loss.when,
        f"{loss.who}@{loss.host}",
        loss.reason,
    )


def _loss_json(stream: str, loss: Loss) -> dict[str, object]:
    facts = asdict(loss)
    records = facts.pop("records")
    return {
        "stream": stream,
        "writer": records["partition"],
        "start_offset": records["start_offset"],
        "end_offset": records["end_offset"],
        "records": loss.records.count,
        **facts,
    }


# -- replay --


def replay_dead_letters(
    path: PathArgument,
    dead_letters: Annotated[
        str, typer.Argument(metavar="STREAM-dead", help="The folder of dead letters.")
    ],
    to: Annotated[
        str | None,
        typer.Option(help="Stream to feed them into.", show_default="where they came from"),
    ] = None,
    most_files: Annotated[
        int | None,
        typer.Option("--max-files", min=1, help="The most files to feed.", show_default="all"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print their number, by error.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Feed raw dead letters back as new records, exactly once, and delete their files.

    May run concurrently with the program that reads the stream, and again after a kill.
    """
    journal = open_journal(path)
    dead = DeadLetterFolder(journal, source_stream(dead_letters))
    target = open_stream(journal, dead.source if to is None else to)
    if dry_run:
        _print_waiting(dead, target, as_json=as_json)
        return
    with progress_bar("replay", dead.count_waiting() if is_shown() else None) as advance:
        count = replay(dead, target, most_files, advance)
    if as_json:
        print_json({"stream": dead.name, "to": target.name, "fed": count})
    else:
        print_line(f"{count} dead letters of {dead.name} were fed into stream {target.name}")


def _print_waiting(dead: DeadLetterFolder, target: JournalStream, *, as_json: bool) -> None:
    errors: Counter[str] = Counter()
    for file in dead.waiting():
        errors.update(dead.read(file).column("error_type").to_pylist())
    if as_json:
        print_json({"stream": dead.name, "to": target.name, "waiting": dict(errors)})
        return
    print_line(f"{errors.total()} dead letters of {dead.name} would go into stream {target.name}")
    for error, count in errors.most_common():
        print_line(f"  {count} {error}")

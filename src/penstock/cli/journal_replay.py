"""``penstock journal replay``: feeds dead letters back into their stream."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from penstock.cli.journal_places import PathArgument, open_journal, open_stream
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.progress import is_shown, progress_bar
from penstock.journal import JournalStream
from penstock.journal.bad_records.dead_letters import DeadLetterFolder, source_stream
from penstock.journal.bad_records.replay import replay


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

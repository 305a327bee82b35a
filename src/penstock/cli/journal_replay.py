"""``penstock journal replay``: feeds dead letters back into their stream."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from penstock.cli.journal_places import PathArgument, names, open_journal, open_stream
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.progress import progress_bar
from penstock.journal import JournalStream
from penstock.journal.bad_records.dead_letters import open_dead_letters, source_stream
from penstock.journal.bad_records.replay import letters_to_replay, replay

__all__ = ["replay_dead_letters"]


def replay_dead_letters(
    path: PathArgument,
    dead_letters: Annotated[
        str, typer.Argument(metavar="STREAM-dead", help="The stream of dead letters.")
    ],
    to: Annotated[
        str | None,
        typer.Option(help="Stream to feed them into.", show_default="where they came from"),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max", min=1, help="The most dead letters to feed.", show_default="all"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print their number, by error.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Feed raw dead letters back as new records, exactly once, and release the letters.

    May run concurrently with the program that reads the stream, and again after a kill.
    """
    journal = open_journal(path)
    names(journal, dead_letters)
    dead = open_dead_letters(journal, dead_letters)
    target = open_stream(journal, source_stream(dead_letters) if to is None else to)
    if dry_run:
        _print_waiting(dead, target, as_json=as_json)
        return
    with progress_bar("replay", most) as advance:
        count = replay(dead, target, most, advance)
    if as_json:
        print_json({"stream": dead.name, "to": target.name, "fed": count})
    else:
        print_line(f"{count} dead letters of {dead.name} were fed into stream {target.name}")


def _print_waiting(dead: JournalStream, target: JournalStream, *, as_json: bool) -> None:
    errors: Counter[str] = Counter()
    for letters in letters_to_replay(dead):
        errors.update(letters.column("error_type").to_pylist())
    if as_json:
        print_json({"stream": dead.name, "to": target.name, "waiting": dict(errors)})
        return
    print_line(f"{errors.total()} dead letters of {dead.name} would go into stream {target.name}")
    for error, count in errors.most_common():
        print_line(f"  {count} {error}")

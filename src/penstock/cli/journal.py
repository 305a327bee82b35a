"""``penstock journal``: show, read and verify a journal. These commands change nothing.

Commands that change a journal are in separate modules.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Annotated

import typer

from penstock.cli.journal_changes import (
    consumers,
    list_losses,
    replay_dead_letters,
    skip_records,
)
from penstock.cli.journal_places import (
    PathArgument,
    StreamArgument,
    names,
    open_journal,
    open_stream,
    open_streams,
)
from penstock.cli.journal_records import as_json, as_text, behind_holes, records
from penstock.cli.options import JsonOption
from penstock.cli.output import (
    Advance,
    is_shown,
    print_json,
    print_line,
    print_text,
    progress_bar,
)
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError, LogFormatError, MissingBlockError, PenstockError
from penstock.journal import JournalStream, Verdict, verify_stream
from penstock.journal.bad_records.dead_letters import DeadLetterFolder, dead_letter_folders
from penstock.journal.losses.loss_log import skip_command
from penstock.journal.verify import verify_files, verify_letters
from penstock.model import OffsetRange
from penstock.status import size
from penstock.status.model import ReceiverStatus, StreamStatus, WriterStatus
from penstock.status.streams import read_stream, read_writers
from penstock.storage import Storage

app = typer.Typer(
    name="journal", no_args_is_help=True, help="Show, read, verify and repair a journal."
)
app.add_typer(consumers)
app.command("replay")(replay_dead_letters)
app.command("skip")(skip_records)
app.command("losses")(list_losses)

_WRITER_COLUMNS = ("writer", "state", "blocks", "records", "offsets", "size")


@app.command("ls")
def list_journal(
    path: PathArgument, stream: StreamArgument = None, as_json_object: JsonOption = False
) -> None:
    """List streams: writers and their blocks, the status of receivers, the lag of consumers."""
    journal = open_journal(path)
    found = [read_stream(each) for each in open_streams(journal, stream)]
    letters = {each.name: each.count_waiting() for each in _dead_letters(journal, stream)}
    if as_json_object:
        listing = {"journal": journal.url, "streams": [asdict(each) for each in found]}
        typer.echo(json.dumps({**listing, "dead_letters": letters}))
        return
    for each in found:
        _print_stream(each)
    for name, count in letters.items():
        if count:
            print_line(f"{name}: {count} dead letters wait for `penstock journal replay`")
    if not found:
        print_line(f"{journal.url} holds no streams")


@app.command("cat")
def print_records(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="First offset.", show_default="oldest")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=0, help="Offset to stop at.", show_default="end")
    ] = None,
    writer: Annotated[
        str | None, typer.Option(help="Only this writer's records.", show_default="all")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="The most records to print.")] = None,
    as_json_lines: JsonOption = False,
) -> None:
    """Print a stream's records, one a line, sorted by writer and offset; --json shows both.

    For STREAM-dead it prints all dead letters of a stream.
    """
    journal = open_journal(path)
    kind = "arrow"
    folder = next((each for each in dead_letter_folders(journal) if each.name == stream), None)
    if folder is not None:
        found = _read_letters(folder)
    else:
        opened = open_stream(journal, stream)
        kind = opened.format.kind
        ranges = _ranges(read_writers(opened), writer, start, end)
        if start is None:
            ranges = [behind_holes(opened, each) for each in ranges]
        found = _read(opened, ranges)
    for partition, offset, record in itertools.islice(found, limit):
        if as_json_lines:
            typer.echo(as_json(partition, offset, record))
        else:
            print_text(as_text(record, kind))


@app.command("verify")
def verify_journal(
    path: PathArgument, stream: StreamArgument = None, as_json_object: JsonOption = False
) -> None:
    """Read every block and check every byte; exit status 1 if there is damage."""
    journal = open_journal(path)
    found = names(journal, stream)
    totals = _Totals()
    damage: list[_Damage] = []
    with progress_bar("verify", _count_blocks(journal, found) if is_shown() else None) as advance:
        letters = _dead_letters(journal, stream)
        for each in _verify(journal, found, letters, totals, advance):
            if as_json_object:
                damage.append(each)
            else:
                each.print()
    if as_json_object:
        listing = [each.as_json() for each in damage]
        print_json({"journal": journal.url, "streams": found, **vars(totals), "damage": listing})
    else:
        print_line(f"{len(found)} streams, {totals}")
    if totals.damaged:
        raise typer.Exit(1)


def _dead_letters(journal: Storage, stream: str | None) -> list[DeadLetterFolder]:
    """Return the folders of dead letters: all, or that of one stream."""
    return [each for each in dead_letter_folders(journal) if stream in (None, each.source)]


# -- ls --


def _print_stream(found: StreamStatus) -> None:
    print_line(f"{found.name} ({found.schema})")
    shown = [each for each in found.writers if each.records or each.state != "sealed"]
    if shown:
        rows = map(_writer_row, shown)
        for line in table_lines(_WRITER_COLUMNS, rows, right=_WRITER_COLUMNS[2:]):
            print_line(line)
    else:
        print_line("no records")
    if hidden := len(found.writers) - len(shown):
        print_line(f"and {hidden} sealed, with no records left")
    for line in _notes(found):
        print_line(line)
    typer.echo()


def _writer_row(found: WriterStatus) -> tuple[object, ...]:
    offsets = f"{found.start_offset}..{found.end_offset}"
    held = size(found.size_bytes)
    return (found.writer, found.state, found.blocks, found.records, offsets, held)


def _notes(found: StreamStatus) -> Iterator[str]:
    """Yield the lines about a stream besides its writers."""
    yield from map(_receiver_line, found.receivers)
    for consumer in found.consumers:
        yield f"consumer {consumer.name}: {consumer.lag_records} records behind"
    if found.max_bytes is not None or found.max_lag_records is not None:
        yield _bound_line(found)
    if lost := sum(each.lost for each in found.writers):
        yield f"{lost} records were skipped: see `penstock journal losses`"
    if any(each.state == "damaged" for each in found.writers):
        yield "a newest block is damaged: run `penstock journal verify`"
    for problem in found.problems:
        yield f"DAMAGED: {problem}"


def _receiver_line(found: ReceiverStatus) -> str:
    when = datetime.fromtimestamp(found.changed_ms // 1000, timezone.utc).isoformat(" ")
    line = (
        f"receiver {found.name}: {found.state} as {found.writer} since {when}, process "
        f"{found.process.pid} on {found.process.host}"
    )
    if found.state == "dead":
        line += ", which did not stop and says nothing any more"
    error = " ".join((found.last_error or "").split())
    return f"{line}; {found.errors} errors, the last: {error}" if found.errors else line


def _bound_line(found: StreamStatus) -> str:
    parts = []
    if found.max_bytes is not None:
        parts.append(f"{size(found.uncommitted_bytes)} of {size(found.max_bytes)} not committed")
    if found.max_lag_records is not None:
        parts.append(f"at most {found.max_lag_records} records behind")
    return f"bound: {', '.join(parts)}"


# -- cat --


def _ranges(
    writers: Sequence[WriterStatus], only: str | None, start: int | None, end: int | None
) -> list[OffsetRange]:
    """Return the ranges that the options select; all records by default."""
    chosen = [each for each in writers if only in (None, each.writer)]
    if only is not None and not chosen:
        raise ConfigError(
            f"the stream has no writer {only}",
            operation="choose records",
            hint="see `penstock journal ls`",
        )
    if only is None and (start is not None or end is not None):
        chosen = [each for each in chosen if each.records]
        if len(chosen) > 1:
            raise ConfigError(
                "each writer has its own offsets, and several writers have records",
                operation="choose records",
                ids={"writers": ",".join(each.writer for each in chosen)},
                hint="name one with --writer",
            )
    return [_range(each, start, end) for each in chosen]


def _range(found: WriterStatus, start: int | None, end: int | None) -> OffsetRange:
    first = found.start_offset if start is None else start
    last = found.end_offset if end is None else end
    return OffsetRange(found.writer, first, max(first, last))


def _read_letters(dead: DeadLetterFolder) -> Iterator[tuple[str, int, object]]:
    for file in dead.waiting():
        for letter in dead.read(file).to_pylist():
            yield letter["writer"], letter["offset"], letter


def _read(stream: JournalStream, ranges: list[OffsetRange]) -> Iterator[tuple[str, int, object]]:
    for wanted in ranges:
        for offset, record in records(stream, wanted):
            yield wanted.partition, offset, record


# -- verify --


class _Totals:
    """The totals of a verification."""

    def __init__(self) -> None:
        self.blocks = self.records = self.size_bytes = self.damaged = self.skipped = 0

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        if verdict.block is not None:
            self.blocks += 1
            self.size_bytes += verdict.block.size
        self.records += verdict.footer.count if verdict.footer else 0
        self.skipped += verdict.skipped
        self.damaged += verdict.error is not None and not verdict.skipped

    def __str__(self) -> str:
        found = f"{self.damaged} DAMAGED" if self.damaged else "all sound"
        if self.skipped:
            found += f", {self.skipped} skipped (see `penstock journal losses`)"
        return f"{self.blocks} blocks, {self.records} records, {size(self.size_bytes)}: {found}"


@dataclass(frozen=True, slots=True)
class _Damage:
    """One file that is damaged, or records that are missing."""

    what: str
    error: PenstockError
    skips: tuple[str, ...] = ()
    """The commands that skip its records."""

    @property
    def kind(self) -> str:
        return "MISSING" if isinstance(self.error, MissingBlockError) else "DAMAGED"

    def print(self) -> None:
        error = self.error
        print_text(
            f"{self.kind} {self.what}\n  file: {error.path}\n  {error.message}\n  fix: {error.hint}"
        )
        for command in self.skips:
            print_line(f"  or skip: {command}")

    def as_json(self) -> dict[str, object]:
        error = self.error
        facts = {"file": error.path, "error": error.message, "fix": error.hint}
        return {"kind": self.kind.lower(), "what": self.what, **facts, "skip": self.skips}


def _count_blocks(journal: Storage, found: list[str]) -> int:
    count = 0
    for name in found:
        with suppress(LogFormatError):  # the verification names it
            opened = JournalStream.open(journal, name)
            count += sum(len(opened.blocks(writer)) for writer in opened.writers())
    return count


def _verify(
    journal: Storage,
    found: list[str],
    letters: list[DeadLetterFolder],
    totals: _Totals,
    advance: Advance,
) -> Iterator[_Damage]:
    for name in found:
        try:
            opened = JournalStream.open(journal, name)
            for verdict in verify_stream(opened):
                totals.add(verdict)
                advance(verdict.block is not None)
                if verdict.error is not None and not verdict.skipped:
                    yield _damage_of(journal, name, verdict)
            for error in verify_files(opened):
                totals.damaged += 1
                yield _Damage(name, error)
        except LogFormatError as error:
            totals.damaged += 1
            yield _Damage(name, error)
    for dead in letters:
        for damage in verify_letters(dead):
            totals.damaged += 1
            yield _Damage(dead.name, damage)


def _damage_of(journal: Storage, stream: str, verdict: Verdict) -> _Damage:
    error, records = verdict.error, verdict.unreadable
    assert isinstance(error, PenstockError)
    what = f"{stream}/{verdict.writer}"
    if records is not None:
        what += f" records [{records.start_offset}, {records.end_offset})"
    elif verdict.block is not None:
        what += f" records from {verdict.block.start_offset} on"
    return _Damage(what, error, tuple(skip_command(journal, stream, each) for each in verdict.left))

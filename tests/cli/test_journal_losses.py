"""``penstock journal skip|losses``: the commands that `verify` prints, run as they stand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest

from penstock.errors import ConfigError
from penstock.journal import JournalStream
from penstock.journal.layout import WriterId
from tests.cli.commands import Commands
from tests.journal.helpers import path_of, rewrite, write_blocks

BLOCKS = [["a", "b"], ["c"], ["d"]]


run = Commands("journal", columns=160).run


@pytest.fixture
def writer(lines: JournalStream) -> WriterId:
    return write_blocks(lines, BLOCKS)


def damage(lines: JournalStream, writer: WriterId) -> None:
    path = path_of(lines, writer, 2)
    rewrite(lines.storage, path, lines.storage.read(path)[:-1])


def remove(lines: JournalStream, writer: WriterId) -> None:
    lines.storage.delete(path_of(lines, writer, 2))


@pytest.mark.parametrize("hurt", [damage, remove])
def test_what_verify_prints_gives_up_what_it_found(
    lines: JournalStream,
    writer: WriterId,
    journal: str,
    hurt: Callable[[JournalStream, WriterId], None],
) -> None:
    hurt(lines, writer)
    found = run("verify", journal)
    assert found.exit_code == 1
    (command,) = re.findall(r"or skip: penstock journal (.*)", found.output)
    done = run(*shlex.split(command.replace("TEXT", "'disk 3 died'")), "--yes")
    assert done.exit_code == 0, done.output
    assert "1 records r0-00000000:2-3 of stream lines are skipped" in done.output

    assert run("cat", journal, "lines", "--json").output.splitlines() == [
        json.dumps({"writer": "r0-00000000", "offset": at, "record": record})
        for at, record in [(0, "a"), (1, "b"), (3, "d")]
    ]
    verified = run("verify", journal)
    assert verified.exit_code == 0
    assert "all sound" in verified.output
    listed = run("ls", journal).output
    assert "1 records were skipped: see `penstock journal losses`" in listed
    (facts,) = json.loads(run("ls", journal, "--json").output)["streams"][0]["writers"]
    assert (facts["records"], facts["lost"]) == (3, 1)


def test_losses_are_printed(lines: JournalStream, writer: WriterId, journal: str) -> None:
    assert "nothing was skipped" in run("losses", journal).output
    damage(lines, writer)
    run("skip", journal, "lines", "r0-00000000:2-3", "--reason", "disk 3 died", "--yes")
    titles, row = Commands("journal", columns=40).run("losses", journal).output.splitlines()
    assert titles.split() == ["stream", "writer", "offsets", "records", "when", "who", "reason"]
    assert row.startswith("lines   r0-00000000  2..3     1        2")
    assert row.endswith("  disk 3 died")
    (loss,) = json.loads(run("losses", journal, "lines", "--json").output)["losses"]
    assert (loss["writer"], loss["start_offset"], loss["end_offset"]) == ("r0-00000000", 2, 3)
    assert loss["records"] == 1
    assert loss["reason"] == "disk 3 died"
    assert set(loss) >= {"who", "host", "when"}


def test_skip_asks_first(lines: JournalStream, writer: WriterId, journal: str) -> None:
    damage(lines, writer)
    arguments = ["skip", journal, "lines", "r0-00000000:2-3", "--reason", "disk 3 died"]
    refused = run(*arguments, answer="n\n")
    assert refused.exit_code == 1
    assert "1 records r0-00000000:2-3 of stream lines cannot be read" in refused.output
    assert "nothing was skipped" in run("losses", journal).output
    assert run(*arguments, answer="y\n").exit_code == 0
    again = run(*arguments)
    assert again.exit_code == 0
    assert "were skipped already" in again.output


@pytest.mark.parametrize("records", ["r0-00000000", "r0-00000000:2", "2-3", "r0-00000000:3-2"])
def test_skip_wants_a_range(
    lines: JournalStream, writer: WriterId, journal: str, records: str
) -> None:
    done = run("skip", journal, "lines", records, "--reason", "x", "--yes")
    assert isinstance(done.exception, ConfigError)


def test_skip_refuses_what_can_be_read(
    lines: JournalStream, writer: WriterId, journal: str
) -> None:
    done = run("skip", journal, "lines", "r0-00000000:0-2", "--reason", "x", "--yes")
    assert isinstance(done.exception, ConfigError)
    assert "of them can be read" in str(done.exception)

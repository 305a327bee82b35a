"""What files and records hold does not control the terminal of who reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.output import print_text, printable
from penstock.cli.tables import table_lines
from penstock.journal import JournalStream
from tests.checkpoint.tools.queries import write_query
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks

ESCAPES = "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2028"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]")


def damage(query: Path) -> None:
    """Put escape sequences where a location may hold text: offsets, settings, names, versions."""
    path = query / "offsets/2"
    conf = json.dumps({ESCAPES: ESCAPES})
    text = path.read_text().replace('{"spark.sql.shuffle.partitions":"2"}', conf)
    path.write_text(text.replace('{"logOffset":2}', json.dumps([ESCAPES], ensure_ascii=False)))
    (query / "commits/2").write_text(f"v1{ESCAPES}")
    for name in (f"offsets/{ESCAPES}\nfile", f"sources/{ESCAPES}/0", f"state/{ESCAPES}/0/1.delta"):
        (query / name).parent.mkdir(exist_ok=True, parents=True)
        (query / name).write_text("v1\n{}")


@pytest.mark.parametrize(
    "command", [["inspect"], ["inspect", "--batch", "2"], ["validate"], ["diff", "1", "2"]]
)
def test_a_checkpoint_location_controls_no_terminal(tmp_path: Path, command: list[str]) -> None:
    query = write_query(tmp_path / "query", batches=3)
    damage(query)

    name, *options = command
    printed = Commands("checkpoint", name, columns=200).run(str(query), *options).output

    assert "\\x1b" in printed
    assert not _CONTROL.search(printed)


def test_records_control_no_terminal(lines: JournalStream, journal: str) -> None:
    write_blocks(lines, [[f"a\tb{ESCAPES}\nmore"]])

    printed = Commands("journal").succeed("cat", journal, "lines")

    assert printed == "a\tb\\x1b]0;title\\x07\\x1b[31m\\x9b2J\\u202e\\u2028\nmore\n"


def test_an_error_controls_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["penstock", "checkpoint", "inspect", f"{tmp_path}/{ESCAPES}"])

    with pytest.raises(SystemExit):
        main()

    printed = capsys.readouterr().err
    assert "\\x1b" in printed
    assert not _CONTROL.search(printed)


def test_other_text_stands_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "tab\t, C:\\x, naïve, 漢字, \N{FAMILY}, עברית"
    assert printable(text) == text
    assert printable("line\n\r") == "line\\n\\r"
    assert printable("\udcff\x7f") == "\\udcff\\x7f"
    print_text("two\nlines\x1b")
    assert capsys.readouterr().out == "two\nlines\\x1b\n"


def test_a_column_is_as_wide_as_what_it_shows() -> None:
    assert list(table_lines(("a\x1b", "b"), [("\x1b[2J", 1)])) == ["a\\x1b    b", "\\x1b[2J  1"]

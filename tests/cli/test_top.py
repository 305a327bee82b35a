"""``penstock top``: what it prints of locations, live, once and as JSON."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from penstock.cli.top_view import view
from penstock.status import LocationStatus, Unreadable
from tests.cli.commands import Commands
from tests.metrics.statuses import full_status
from tests.ui.world import world
from tests.waiting import WAIT_S

TOP = Commands("top", columns=80)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A slow program, a dead consumer and a loss are among them."""
    return [str(path) for path in world(tmp_path_factory.mktemp("world"))]


def printed(statuses: list[LocationStatus | Unreadable], width: int) -> str:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(view(statuses, width))
    return captured.get()


def test_what_is_wrong_is_found_at_once_the_worst_first(paths: list[str]) -> None:
    text = TOP.succeed("--once", *paths)
    about = [line for line in text.splitlines() if ": " in line]
    levels = [line.split()[0] for line in about]
    assert levels == sorted(levels, key=["error", "warning", "stopped"].index)
    words = " ".join(text.split())
    assert "records of sensors were lost" in words
    assert "consumer fraud-scoring of web-clicks is dead" in words
    assert "enrich-sessions: it is behind" in words


@pytest.mark.parametrize("width", [80, 160])
def test_it_fits_the_terminal_and_cuts_no_number(paths: list[str], width: int) -> None:
    text = Commands("top", columns=width).succeed("--once", *paths)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\u2026" not in text
    titles = next(line for line in text.splitlines() if line.startswith("STREAM")).split()
    assert ("CONSUMERS" in titles) == (width == 160)


def test_hostile_names_are_text_and_a_location_that_is_gone_is_named() -> None:
    evil = replace(full_status(), name="a\x1b[2J\nb[red]", problems=("\x1b]0;title\x07",))
    text = printed([evil, Unreadable("file:/x", "x", "there is no such folder")], 100)
    assert "\x1b" not in text
    assert r"a\x1b[2J\nb[red]" in text
    assert "x: there is no such folder" in text


def test_long_names_leave_room_for_numbers() -> None:
    long = replace(full_status(), name="n" * 300)
    lines = printed([long], 80).splitlines()
    assert lines[0].split()[-1] == "TOOK"
    assert "n\u2026" in lines[1]


def test_json_has_all_that_is_known_and_the_verdict(paths: list[str], tmp_path: Path) -> None:
    found = json.loads(TOP.succeed("--json", *paths, str(tmp_path / "gone")))["locations"]
    by_name = {each["name"]: each for each in found}
    assert by_name["enrich-sessions"]["health"]["level"] == "warning"
    assert by_name["ingest"]["streams"][0]["name"] == "sensors"
    assert "gone" in by_name["gone"]["error"]


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_lives_on_a_terminal_and_leaves_it_as_it_was(paths: list[str], end: int) -> None:
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("penstock")), "top", "--interval", "0.2", *paths]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        seen = b""
        deadline_s = time.monotonic() + WAIT_S
        while seen.count(b"enrich-sessions") < 6 and time.monotonic() < deadline_s:
            seen += os.read(ours, 65_536)
        assert b"\x1b[?1049h" in seen  # a screen of its own
        process.send_signal(end)
        while b"\x1b[?1049l" not in seen and time.monotonic() < deadline_s:
            seen += os.read(ours, 65_536)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)

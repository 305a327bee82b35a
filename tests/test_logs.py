"""What is seen of penstock's log, by programs that configure logging and by those that do not."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.clock import iso_time
from penstock.logs import Event, JsonFormatter

PROGRAM = """
import logging
import penstock
{configures}
logging.getLogger("penstock.some.module").info("not told")
logging.getLogger("penstock.some.module").warning("told")
"""
COMMAND = "from penstock.cli.main import main; main()"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}"


def printed(configures: str) -> str:
    code = PROGRAM.format(configures=configures)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_a_program_that_configures_nothing_sees_warnings_with_time_and_level() -> None:
    assert re.fullmatch(rf"{TIME} WARNING penstock\.some\.module: told\n", printed(""))


@pytest.mark.parametrize(
    ("configures", "seen"),
    [
        ("logging.basicConfig(format='mine %(message)s')", "mine told\n"),
        ("logging.getLogger('penstock').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('penstock.some').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('penstock').setLevel(logging.ERROR)", ""),
    ],
)
def test_a_program_that_configures_logging_has_it_its_way(configures: str, seen: str) -> None:
    assert printed(configures) == seen


@pytest.mark.parametrize("place", ["penstock.some.module", "penstock.some", "penstock"])
@pytest.mark.parametrize("level", ["INFO", "TRACE"])
def test_a_level_alone_shows_what_it_lets_through(place: str, level: str) -> None:
    lines = printed(f"logging.getLogger({place!r}).setLevel({level!r})").splitlines()
    assert [line.split()[-2:] for line in lines] == [
        ["not", "told"],
        ["penstock.some.module:", "told"],
    ]


TRACED = """
import logging
{before}
import penstock
{after}
from penstock.rate import PIDRateEstimator
estimator = PIDRateEstimator(1000)
estimator.compute(1000, 0, 0, 0)
"""
SET = 'logging.getLogger("penstock.rate.pid").setLevel({})'


@pytest.mark.parametrize(
    ("before", "after"), [(SET.format(5), ""), ("", SET.format('"TRACE"')), ("", SET.format(5))]
)
def test_the_trace_is_seen_by_its_level_alone(before: str, after: str) -> None:
    code = TRACED.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(rf"^{TIME} TRACE penstock\.rate\.pid: .*skipped", done.stderr, re.MULTILINE)


def test_the_root_logger_is_left_alone() -> None:
    code = (
        "import logging, penstock.streaming, penstock.journal, penstock.receivers;"
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 30\n"


def test_commands_log_with_time_and_level() -> None:
    code = (
        "import logging, sys; from penstock.cli.main import main; sys.argv[1:] = ['--version'];"
        "import atexit; atexit.register(logging.getLogger('penstock.some').warning, 'told'); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"{TIME} WARNING penstock\.some: told\n", done.stderr)


def test_an_event_is_pairs_that_a_program_parses() -> None:
    event = Event(
        "batch", {"query": 'a "b"=c\n\x9b', "records": 3, "took": None, "at": "2026-1:0Z"}
    )
    assert str(event) == r'batch query="a \"b\"=c\n\u009b" records=3 at=2026-1:0Z'


def formatted(message: object, *arguments: object, error: BaseException | None = None) -> object:
    info = (type(error), error, None) if error else None
    record = logging.LogRecord("penstock.x", logging.INFO, "", 0, message, arguments, info)  # type: ignore[arg-type]
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_json_has_the_fields_of_an_event_as_they_are() -> None:
    line = formatted(Event("batch", {"records": 3, "query": "a\nb", "took": None}))
    assert isinstance(line, dict)
    assert iso_time(0)[-1] == line.pop("time")[-1] == "Z"
    fields = {"message": "batch", "records": 3, "query": "a\nb"}
    assert line == {"level": "INFO", "logger": "penstock.x", **fields}


def test_json_has_other_messages_as_text_and_errors_with_them() -> None:
    line = formatted("%d of %s", 2, "three", error=ValueError("no\nway"))
    assert isinstance(line, dict)
    assert line["message"] == "2 of three"
    assert line["exception"].endswith("ValueError: no\nway")


@pytest.mark.parametrize("how", ["option", "environment"])
def test_commands_log_as_json_also_the_error_that_ends_them(tmp_path: Path, how: str) -> None:
    given = ["--log-format", "json"] if how == "option" else []
    environment = {"PENSTOCK_LOG_FORMAT": "json"} if how == "environment" else {}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *given, "journal", "ls", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 1
    line = json.loads(done.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "penstock")
    assert "none" in line["message"]


def test_times_are_iso_8601() -> None:
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(10**18) == f"{10**18} ms"

"""What is seen of penstock's log, by programs that configure logging and by those that do not."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from penstock.clock import iso_time

PROGRAM = """
import logging
import penstock
{configures}
logging.getLogger("penstock.some.module").info("not told")
logging.getLogger("penstock.some.module").warning("told")
"""
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


def test_times_are_iso_8601() -> None:
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"

"""What is imported when: imports are most of the time that a short command takes.

Times differ between machines; what is imported does not.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"fsspec", "numpy", "pandas", "pyarrow", "pyspark", "py4j"}
SLOW = {"pandas", "pyspark", "py4j"}
"""What takes half a second or more to import."""
SERVERS = {"asyncio", "confluent_kafka", "httptools", "paho", "starlette", "uvicorn"}

COMMAND = """
import json, sys
from penstock.cli.main import main
sys.argv = ["penstock", *{arguments}]
try:
    main()
except SystemExit as ended:
    print()
    print(json.dumps([ended.code, *sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


def imported(program: str) -> tuple[int, set[str]]:
    """Run a program; return the status and the packages that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    status, *packages = json.loads(done.stdout.splitlines()[-1])
    return status, set(packages)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []], ids=str)
def test_the_command_line_imports_nothing_slow_to_show_itself(
    arguments: list[str],
) -> None:
    status, packages = imported(COMMAND.format(arguments=arguments))
    assert status in (0, 2)  # without arguments it is the help, too, and a usage error
    assert packages & (SLOW | SERVERS) == set()


def test_the_package_imports_nothing_heavy() -> None:
    program = "import json, sys, penstock; print(json.dumps([0, *sys.modules]))"
    packages = imported(program)[1]
    assert packages & (HEAVY | SERVERS | {"rich", "typer"}) == set()
    own = {name for name in packages if name.startswith("penstock.")}
    assert own <= {"penstock.clock", "penstock.logs"}

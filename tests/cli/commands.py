"""Runs a command of ``penstock`` within the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError


class Commands:
    """One command with its subcommands, on a terminal of so many columns."""

    def __init__(self, *command: str, columns: int = 100) -> None:
        self._command = command
        self._environment = {"COLUMNS": str(columns)}

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        """Run it, and answer its question if it has one."""
        line = [*self._command, *arguments]
        return CliRunner().invoke(app, line, env=self._environment, input=answer)

    def succeed(self, *arguments: str) -> str:
        """Run it; return what it printed."""
        done = self.run(*arguments)
        if done.exception is not None:
            raise done.exception
        return done.output

    def fail(self, *arguments: str) -> PenstockError:
        """Run it; return its error."""
        done = self.run(*arguments)
        assert isinstance(done.exception, PenstockError), done.output
        return done.exception


def leaf_commands(command: Any, *before: str) -> Iterator[tuple[str, Any]]:
    """Yield all commands that do something, with their names."""
    inner_commands = getattr(command, "commands", {})
    if before and (not inner_commands or command.invoke_without_command):
        yield " ".join(before), command
    for name, inner in inner_commands.items():
        yield from leaf_commands(inner, *before, name)

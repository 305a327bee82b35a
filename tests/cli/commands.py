"""Runs a command of ``penstock`` within the test's process."""

from __future__ import annotations

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
        assert done.exception is None, done.exception
        return done.output

    def fail(self, *arguments: str) -> PenstockError:
        """Run it; return its error."""
        done = self.run(*arguments)
        assert isinstance(done.exception, PenstockError), done.output
        return done.exception

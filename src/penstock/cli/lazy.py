"""Commands whose modules are imported when they run: ``--help`` and ``--version`` import none.

A group made with ``lazy_group`` lists its commands by the texts that it is given. A stub stands for
each of them until it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

__all__ = ["LazyCommand", "lazy_group"]


class LazyCommand(NamedTuple):
    """A command, or a group of them."""

    module: str
    """Its ``app`` is a ``typer.Typer`` that has the command, or is the group."""
    help: str
    """The first sentences of its help."""

    def load(self, name: str) -> Any:
        """Import the module; return the command of that name."""
        holder = typer.Typer(add_completion=False)
        holder.add_typer(import_module(self.module).app)
        return get_group(holder).commands[name]


class _Stub(TyperCommand):
    def __init__(self, name: str, stands_for: LazyCommand) -> None:
        super().__init__(name, help=stands_for.help)
        self._stands_for = stands_for

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Parse the arguments as the command does; the context runs the command."""
        command = self._stands_for.load(self.name or "")
        return command.make_context(info_name, args, *more, **extra)


def lazy_group(lazy: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group of these commands, by name, for ``typer.Typer(cls=...)``."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(lazy)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _Stub(cmd_name, lazy[cmd_name]) if cmd_name in lazy else None

        @property
        def commands(self) -> dict[str, Any]:
            """The commands themselves, for those who walk through them; imports all."""
            return {name: command.load(name) for name, command in lazy.items()}

        @commands.setter
        def commands(self, given: Mapping[str, Any]) -> None:
            """TyperGroup sets those that are registered: none."""

    return LazyGroup

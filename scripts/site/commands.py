"""The page of all commands, made of the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from html import escape
from typing import Any

import typer

from penstock.cli.main import app

__all__ = ["all_commands", "commands_page"]

_INTRO = """# Commands

Every command with its arguments and options, as `--help` prints them. Commands that only read need
no permission to write. Exit statuses: 0 done, 1 an error or a finding, 2 the arguments are wrong;
commands with other statuses say so below.
"""


def all_commands() -> dict[str, Any]:
    """Return all commands by what one types, groups left out."""
    return dict(_below(typer.main.get_command(app), "penstock"))


def commands_page() -> str:
    """Return the page in Markdown."""
    return "\n".join([_INTRO, *(_section(*each) for each in all_commands().items())])


def _below(command: Any, typed: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None or getattr(command, "invoke_without_command", False):
        yield typed, command
    for name, each in (inner or {}).items():
        if not each.hidden:
            yield from _below(each, f"{typed} {name}")


def _section(typed: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [_name(each) for each in shown if _is_argument(each)]
    usage = " ".join([typed, *arguments, *(["[OPTIONS]"] if len(arguments) < len(shown) else [])])
    text = inspect.cleandoc(command.help or "").replace("\f", "").strip()
    rows = [_row(each) for each in shown]
    table = ["| argument or option | default | meaning |", "| --- | --- | --- |", *rows, ""]
    return f"## {typed}\n\n    {usage}\n\n{text}\n\n" + ("\n".join(table) if rows else "")


def _row(parameter: Any) -> str:
    given = parameter.default
    default = "" if callable(given) or given in (None, False, "", [], ()) else f"`{given}`"
    told = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    name = escape(_name(parameter)).replace("|", "&#124;")
    return f"| <code>{name}</code> | {'required' if parameter.required else default} | {told} |"


def _name(parameter: Any) -> str:
    if _is_argument(parameter):
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")

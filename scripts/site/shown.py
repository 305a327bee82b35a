"""The command lines that pages show, tried on the command line's own parser."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from penstock.cli.main import app
from scripts.site.commands import all_commands

__all__ = ["wrong_commands"]

_BLOCK = re.compile(
    r"^(?P<in> *)```(?P<language>\w*)\n(?P<fenced>(?:.*\n)*?)(?P=in)```"
    r"|(?P<indented>(?:^ {4}.*\n)+)",
    re.MULTILINE,
)
_SHELL = {"", "sh", "bash", "console", "text"}
_IN_A_LINE = re.compile(r"`+penstock ([^`]+)`")
_ASSIGNMENT = re.compile(r"\w+=")


def wrong_commands(file: str, text: str) -> Iterator[str]:
    """Yield commands of penstock in a page that its parser does not take.

    Those in blocks have to be whole. Those in a line of text may leave arguments out; their
    words and options have to exist.
    """
    for block in _BLOCK.finditer(text):
        if (block["language"] or "") in _SHELL:
            for words in _commands(block["fenced"] or block["indented"]):
                if (wrong := _refusal(words)) is not None:
                    yield f"{file} shows `penstock {shlex.join(words)}`: {wrong}"
    for found in _IN_A_LINE.finditer(_BLOCK.sub("", text)):
        for word in _unknown(found[1].split()):
            yield f"{file} names `penstock {found[1]}`: there is no {word}"


def _commands(block: str) -> Iterator[list[str]]:
    """Return the arguments of each call of penstock in a block of shell commands.

    In a block with prompts, the other lines are what was printed.
    """
    lines = block.replace("\\\n", " ").splitlines()
    typed = [line.strip()[2:] for line in lines if line.strip().startswith("$ ")]
    for line in typed or lines:
        if "penstock " not in line:
            continue
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            yield from _calls(list(words))
        except ValueError:  # an apostrophe: text, and no command
            continue


def _calls(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in [*words, ";"]:
        if word[0] not in "();<>|&":
            command.append(word)
            continue
        if word[0] in "<>" and command and command[-1].isdigit():
            command.pop()  # the descriptor of `2> file`
        while command and _ASSIGNMENT.match(command[0]):
            command.pop(0)
        if command[1:] and command[0] in {"penstock", ".venv/bin/penstock"}:
            yield command[1:]
        command = []


def _refusal(words: list[str]) -> str | None:
    """Return why the parser refuses these arguments; None if it takes them. Nothing is run."""
    lengths = (n for n in (3, 2, 1) if " ".join(["penstock", *words[:n]]) in _known())
    if (depth := next(lengths, 0)) == 0:  # to parse --install-completion is to do it
        unknown = next(_unknown(words), None)
        named = words[0].startswith("-") and unknown is None
        return None if named else f"there is no {unknown or 'such command'}"
    command = _known()[" ".join(["penstock", *words[:depth]])]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            command.make_context("penstock", words[depth:])
    except typer.Exit:  # --help
        return None
    except Exception as error:
        return str(error)
    return None


def _unknown(words: list[str]) -> Iterator[str]:
    """Yield the first word that should be a command and is none, or the options that none has.

    ``a|b`` stands for several commands, and a group for all that are in it.
    """
    meant = {name: name.split()[1:] for name in _known()}
    for place, word in enumerate(words):
        if not re.fullmatch(r"[a-z|]+", word):
            break
        further = {name: each for name, each in meant.items() if each[place:][:1] != []}
        here = {name: each for name, each in further.items() if each[place] in word.split("|")}
        if {each[place] for each in here.values()} != set(word.split("|")):
            if len(further) == len(meant):  # and none ends before this word
                yield f"command {word}"
                return
            break
        meant = here
    options = {"--help", *_options(_root())}
    options |= {option for name in meant for option in _options(_known()[name])}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)):
        if option not in options:
            yield f"option {option}"


def _options(command: Any) -> list[str]:
    return [name for each in command.params for name in (*each.opts, *each.secondary_opts)]


@cache
def _root() -> Any:
    return typer.main.get_command(app)


@cache
def _known() -> dict[str, Any]:
    return all_commands()

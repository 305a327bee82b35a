"""The options of a data source: declared once, parsed at ``load()``, refused by name. Pure.

Spark hands options over without regard to case.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from penstock.conf import RateSettings, parse_duration_ms, parse_positive
from penstock.errors import ConfigError

REQUIRED: Any = object()
"""The default of an option that has to be given."""

_PREFIX = "spark.streaming."


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str
    parse: Callable[[str, str], Any]
    """Takes the name and the text; raises ConfigError."""
    default: Any = None
    example: str = ""
    """A value, for messages."""
    only: Literal["", "stream", "batch"] = ""
    """With what it has a meaning: ``readStream``, ``read``, or both."""


def max_offsets(given: Mapping[str, str]) -> int | None:
    """Return the option ``maxOffsetsPerTrigger``, None if it is not given."""
    texts = {name.lower(): value for name, value in given.items()}
    found = texts.get("maxoffsetspertrigger")
    return None if found is None else parse_positive("maxOffsetsPerTrigger", found)


def text(name: str, value: str) -> str:
    """Return a text that must not be empty."""
    if not value.strip():
        raise _refused(name, value, "a value")
    return value


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Return the parser of an option with few values."""

    def parse(name: str, value: str) -> str:
        for choice in choices:
            if choice.lower() == value.strip().lower():
                return choice
        raise _refused(name, value, f"one of {', '.join(choices)}")

    return parse


def parse_options(source: str, table: Sequence[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each option of a source's table.

    Raises:
        ConfigError: an option is unknown, missing, or has no such value.
    """
    known = {option.name.lower(): option for option in table}
    texts = {name.lower(): value for name, value in given.items()}
    for name in texts:
        if name not in known:
            raise _unknown(source, name, known)
    return {option.name: _value(source, option, texts) for option in table}


def check_kind(
    source: str, table: Sequence[Option], given: Mapping[str, str], kind: Literal["stream", "batch"]
) -> None:
    """Check that options which have a meaning in the other kind of read only are not given.

    Raises:
        ConfigError: one is; the error names it.
    """
    names = {name.lower() for name in given}
    reads = {"stream": "readStream", "batch": "read"}
    for option in table:
        if option.only not in ("", kind) and option.name.lower() in names:
            raise ConfigError(
                f'{reads[kind]}.format("{source}") has no option {option.name!r}',
                operation="read options",
                ids={"option": option.name},
                hint=f"it belongs to spark.{reads[option.only]}: leave it out",
            )


def _value(source: str, option: Option, texts: Mapping[str, str]) -> Any:
    found = texts.get(option.name.lower())
    if found is not None:
        return option.parse(option.name, found)
    if option.default is REQUIRED:
        raise ConfigError(
            f'format("{source}") needs option {option.name!r}',
            operation="read options",
            ids={"option": option.name},
            hint=f'add .option("{option.name}", "{option.example}")',
        )
    return option.default


def _unknown(source: str, name: str, known: Mapping[str, Option]) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    names = ", ".join(sorted(option.name for option in known.values()))
    hint = (
        f"did you mean {known[near[0]].name!r}? (Spark hands option names over in lower case)"
        if near
        else f"the options are {names}"
    )
    if name == "path":
        needed = [option for option in known.values() if option.default is REQUIRED]
        given = "".join(f'.option("{each.name}", "{each.example}")' for each in needed)
        hint = f"call load() without a path; what is read is given by options: {given or names}"
    return ConfigError(
        f'format("{source}") has no option {name!r}',
        operation="read options",
        ids={"option": name},
        hint=hint,
    )


def time_ms(name: str, value: str) -> int:
    """Return a time in milliseconds since the epoch."""
    if not value.strip().isdecimal() or int(value) >= 1 << 63:
        raise _refused(name, value, "milliseconds since the epoch, such as 1764000000000")
    return int(value)


def _refused(name: str, value: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"option {name} is {value!r}",
        operation="read options",
        ids={"option": name},
        hint=f"give {wanted}",
    )


def _rate_options() -> list[Option]:
    """Return the options of back pressure: penstock's settings without their prefix."""
    found = []
    for each in fields(RateSettings):
        name = each.metadata["names"][0].removeprefix(_PREFIX)
        if name.startswith("backpressure."):
            found.append(Option(name, each.metadata["parse"], each.default, only="stream"))
    return found


ADMISSION = (
    Option("maxOffsetsPerTrigger", parse_positive, only="stream"),
    *_rate_options(),
    Option("backpressure.batchInterval", parse_duration_ms, only="stream"),
)
"""The options that say how far a batch goes, of every source."""

"""Plain values that every layer shares: names, offset maps, offset ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from penstock.errors import ConfigError

COMPRESSIONS = ("none", "lz4", "snappy", "zstd")
"""How the blocks of a journal may be compressed."""

WhenFull = Literal["block", "fail"]
"""At a bound of a journal's stream the source waits, or the receiver ends with an error."""
WHEN_FULL: tuple[WhenFull, ...] = get_args(WhenFull)

Offsets = Mapping[str, int]
"""Partition (a journal's writer, a Kafka partition) -> end offset, exclusive."""

_SIZE = re.compile(r"\s*([0-9]+)([kmgt]?)b?\s*")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Records ``[start_offset, end_offset)`` of one partition of one stream."""

    partition: str
    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ConfigError(
                f"offset range [{self.start_offset}, {self.end_offset}) of {self.partition!r} "
                "is not ascending",
                operation="build offset range",
                hint="offsets start at 0 and the end is exclusive",
            )

    @property
    def count(self) -> int:
        """How many records the range holds."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """One batch of one output: what a sink remembers to write it once, however often it runs.

    It is the same whenever the batch runs, in whatever run, and no other batch's.
    """

    location_id: str
    """The checkpoint location's id."""
    output: str
    """The output's name."""
    batch_id: int
    may_be_written: bool = field(default=False, compare=False)
    """Whether an earlier run with this output planned the batch, and may have written it."""
    run: str = field(default="", compare=False)
    """The run that writes it: a run writes a batch of an output once. Empty if it is not known."""
    plan: str = field(default="", compare=False)
    """Which run planned the batch, and when. It tells the batch from one that is planned under its
    id in an older copy of the checkpoint location; exactly-once sinks refuse a batch without."""


def shown(value: object) -> str:
    """Return an argument as a message shows it: of a mapping, which may be a conf, only its keys.

    A conf holds passwords, and may stand in the place of any other argument.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: ..." for key in value) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)


def check_name(kind: str, name: str) -> str:
    """Return ``name`` if it can stand in a path unescaped, else raise ConfigError.

    ``kind`` says what is named ("stream", "receiver", "consumer") for the message.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{kind} name {shown(name)} is not allowed",
            operation=f"name a {kind}",
            hint="use 1 to 128 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
        )
    return name


def parse_size(text: str) -> int | None:
    """Return the bytes in ``500m`` or ``20g``; units are powers of 1024, as in Spark's settings.

    None when it is not a size.
    """
    match = _SIZE.fullmatch(text.lower())
    return int(match[1]) * _SIZE_UNITS[match[2]] if match else None

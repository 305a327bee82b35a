"""Reads the rates of a program or a query from its checkpoint location.

The overrides of both are files in its folder ``rate``; see RateOverrides.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools.offsets import inputs_of
from penstock.errors import ConfigError
from penstock.journal import stream_names
from penstock.rate import (
    RATES_FILE,
    RATES_KEY,
    EndedBatch,
    RateOverride,
    RateOverrides,
    decode_rates,
)
from penstock.storage import Storage, open_existing

_INPUTS = "spark.penstock.inputs"
_HINT = "give the directory that the query has as checkpointLocation, or the program's checkpoint()"


@dataclass(frozen=True, slots=True)
class StreamRates:
    """One input's override, and its batches that the offset log still has, oldest first.

    The batch that ended last is included as soon as the next one is planned.
    """

    stream: str
    override: RateOverride
    batches: list[EndedBatch]


def open_location(path: str) -> Storage:
    """Open a checkpoint location that a program has used.

    Raises:
        ConfigError: ``path`` has no checkpoint location.
    """
    storage = open_existing(path, operation="open checkpoint location", hint=_HINT)
    if not storage.exists("metadata"):
        raise ConfigError(
            "this is not a checkpoint location, or no program has used it yet",
            operation="open checkpoint location",
            path=path,
            hint=_HINT,
        )
    return storage


def parse_rate(text: str) -> float:
    """Return a number of records per second.

    Raises:
        ConfigError: it is none.
    """
    try:
        return float(text)
    except ValueError as e:
        raise ConfigError(
            f"the rate {text[:40]!r} is not a number",
            operation="change rate",
            hint="give records per second, such as 5000 or 0.5",
        ) from e


def program_streams(storage: Storage, only: str | None) -> list[str]:
    """Return the names of the program's inputs, or only the requested one.

    Raises:
        ConfigError: the program has no such input, or none yet.
    """
    newest = CheckpointLocation(storage).offsets.latest()
    names = set() if newest is None else _names(newest[1])
    if any(entry.name == "journal" for entry in storage.list()):
        journal = open_existing(f"{storage.url}/journal", operation="open journal", hint=_HINT)
        names |= set(stream_names(journal))
    if not names:
        raise ConfigError(
            "the program has not planned a batch yet, so its inputs are not known",
            operation="choose input",
            path=storage.url,
            hint="repeat the command when its first batch has begun",
        )
    if only is None:
        return sorted(names)
    if only not in names:
        raise ConfigError(
            f"the program has no input {only!r}",
            operation="choose input",
            path=storage.url,
            hint=f"name one of: {', '.join(sorted(names))}",
        )
    return [only]


def change_overrides(
    storage: Storage, only: str | None, change: Callable[[RateOverride], RateOverride]
) -> dict[str, RateOverride]:
    """Change the override of each input, or only of the requested one; return what they are now.

    Raises:
        ConfigError: as ``program_streams``, and what ``change`` raises.
        LogFormatError, StorageError: an override cannot be read or written.
    """
    overrides, changed = RateOverrides(storage), {}
    for name in program_streams(storage, only):
        changed[name] = change(overrides.get(name))
        overrides.set(name, changed[name])
    return changed


def read_rates(storage: Storage, only: str | None = None) -> list[StreamRates]:
    """Return the stored rates of every input, by name.

    Raises:
        ConfigError: the program has no input ``only``.
        LogFormatError: an entry of the offset log or an override is damaged.
    """
    found: dict[str, list[EndedBatch]] = {name: [] for name in program_streams(storage, only)}
    for entry in _entries(storage):
        for name, kept in decode_rates(entry.conf.get(RATES_KEY, "{}")).items():
            if name in found:
                found[name] += kept.batches
    if storage.exists(RATES_FILE):
        for name, kept in decode_rates(storage.read(RATES_FILE).decode()).items():
            found.setdefault(name, []).extend(kept.batches)
    overrides = RateOverrides(storage)
    return [StreamRates(name, overrides.get(name), batches) for name, batches in found.items()]


def _entries(storage: Storage) -> list[OffsetSeq]:
    """Return the entries of the offset log, oldest first; a running program may retire some."""
    offsets = CheckpointLocation(storage).offsets
    entries = (offsets.get(batch_id) for batch_id in offsets.batch_ids())
    return [entry for entry in entries if entry is not None]


def _names(entry: OffsetSeq) -> set[str]:
    """Return the inputs that have offsets in an entry.

    A program's inputs have names; a query's are called as ``inputs_of`` says.
    """
    given = json.loads(entry.conf.get(_INPUTS, "[]"))
    names: set[str] = set()
    for place, line in enumerate(entry.sources):
        if place < len(given):
            names.add(given[place])
        elif line is not None:
            names.update(inputs_of(str(place), json.loads(line)))
    return names

"""Reads a location into values: live or dead, on a local disk or an object store.

Nothing is written, and a program that runs is not disturbed: whether it holds its lock is seen
without keeping one (see driver_lock). What cannot be read is named among the problems, beside all
that can.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.checkpoint.driver_lock import LOCK_NAME, driver_runs
from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.offsets import streams_of
from penstock.checkpoint.tools.reading import list_folders
from penstock.errors import ConfigError, LogFormatError, NotFoundError, PenstockError
from penstock.journal import stream_names
from penstock.journal.layout import stream_info_path
from penstock.journal.losses.loss_log import Loss, read_losses, source_folder
from penstock.rate import (
    RATES_FILE,
    KeptRates,
    RateOverride,
    RateOverrides,
    decode_rates,
)
from penstock.status.batches import BatchReader, ReadBatches
from penstock.status.model import MOST_BATCHES, InputStatus, Kind, LocationStatus, Process
from penstock.status.streams import LetterReader, ReadStreams, newest_losses, read_streams
from penstock.storage import Storage, attach_storage, open_existing

JOURNAL = "journal"
"""The folder of a program's journal in its checkpoint location."""
_LOGS = ("offsets", "commits")
_HINT = "give a checkpoint location or a journal"


@dataclass(frozen=True, slots=True)
class _Place:
    """A location."""

    storage: Storage
    kind: Kind
    """``program`` also for a query: the newest batch tells which it is."""
    journal: Storage | None
    """None without one."""


def _find_place(path: str) -> _Place:
    """Return the location at a path or URL; nothing is written.

    Raises:
        ConfigError: there is no such folder, or it is not a location.
        StorageError: it cannot be listed.
    """
    storage = open_existing(path, operation="open location", hint=_HINT).without_sync()
    folders = {entry.name: entry.is_folder for entry in storage.list()}
    journal = _journal_in(storage) if folders.get(JOURNAL) else None
    if folders.get(METADATA) is False or any(folders.get(log) for log in _LOGS):
        return _Place(storage, "program", journal)
    if journal is not None:
        return _Place(storage, "journal", journal)
    if stream_names(storage):
        return _Place(storage, "journal", storage)
    raise ConfigError(
        "this is neither a checkpoint location nor a journal, or no program has used it yet",
        operation="open location",
        path=path,
        hint=_HINT,
    )


def _journal_in(storage: Storage) -> Storage | None:
    if storage.exists(stream_info_path(JOURNAL)):  # a stream of that name, in a journal
        return None
    return attach_storage(f"{storage.url.rstrip('/')}/{JOURNAL}").without_sync()


def read_location(path: str) -> LocationStatus:
    """Return the status of a location, once; see LocationReader."""
    return LocationReader(path).read()


class LocationReader:
    """Reads one location, as often as asked. Not thread-safe.

    Args:
        path: path or URL of a checkpoint location or a journal.
        name: what people call it; the last part of the path when it is not given.
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        self._path = path
        self.name = name or path.rstrip("/").rpartition("/")[2] or path
        self._batches = BatchReader()
        self._letters = LetterReader()

    def read(self) -> LocationStatus:
        """Return its status now.

        Raises:
            ConfigError: there is no such folder, or it is not a location.
            StorageError: it cannot be listed.
        """
        now_ms = time.time_ns() // 1_000_000
        place = _find_place(self._path)
        journal = ReadStreams()
        if place.journal is not None:
            journal = read_streams(place.journal, self._letters, now_ms)
        status = _of_journal(place, self.name, journal, now_ms)
        if place.kind == "program":
            return self._with_batches(status, place.storage, journal)
        return status

    def _with_batches(
        self, status: LocationStatus, storage: Storage, journal: ReadStreams
    ) -> LocationStatus:
        checkpoint = Checkpoint(storage, list_folders(storage, ("offsets", "commits")))
        is_locked = _is_locked(storage)
        read = self._batches.read(checkpoint, is_locked=is_locked)
        driver, failed = read.driver, read.runs.failed
        inputs, problems = _read_inputs(storage, read, journal, status.read_ms)
        losses, lost = _losses_of_inputs(storage, problems)
        return replace(
            status,
            name=driver.name if driver and driver.name else status.name,
            failure=failed[1] if failed and failed[0] is None else None,
            kind="program" if read.is_of_penstock or not read.batches else "query",
            process=None if driver is None else Process(driver.host, driver.pid),
            is_running=False if is_locked is None and read.runs.has_ended else is_locked,
            spark_ui=None if driver is None else driver.spark_ui,
            batch_interval_ms=read.interval_ms,
            batches=read.batches,
            earlier=read.earlier,
            committed=read.committed,
            inputs=inputs,
            losses=losses,
            lost_records=lost,
            next=read.next,
            problems=(*status.problems, *read.problems, *problems),
        )


def _of_journal(place: _Place, name: str, journal: ReadStreams, now_ms: int) -> LocationStatus:
    return LocationStatus(
        location=place.storage.url,
        name=name,
        kind=place.kind,
        read_ms=now_ms,
        process=None,
        is_running=None,
        spark_ui=None,
        batch_interval_ms=None,
        batches=(),
        earlier=0,
        committed=-1,
        inputs=(),
        streams=journal.streams,
        losses={},
        next=None,
        problems=journal.problems,
        dead_letters=journal.dead_letters,
        letters=journal.letters,
    )


def _is_locked(storage: Storage) -> bool | None:
    path = local_path(storage, LOCK_NAME)
    return None if path is None else driver_runs(path)


def _losses_of_inputs(
    storage: Storage, problems: list[str]
) -> tuple[dict[str, tuple[Loss, ...]], dict[str, int]]:
    """Return the losses of inputs without a journal, such as Kafka topics, and their records."""
    found: dict[str, tuple[Loss, ...]] = {}
    lost: dict[str, int] = {}
    for entry in storage.list("sources"):
        if entry.is_folder:
            try:
                losses = read_losses(storage, source_folder(entry.name))
                lost[entry.name] = sum(each.records.count for each in losses)
                if losses:
                    found[entry.name] = newest_losses(losses)
            except PenstockError as error:
                problems.append(str(error))
    return found, lost


# -- inputs: what they have yet to take, and what limits them --


def _read_inputs(
    storage: Storage, read: ReadBatches, journal: ReadStreams, now_ms: int
) -> tuple[tuple[InputStatus, ...], list[str]]:
    """Return the inputs of a location, and what could not be read of their rates."""
    problems: list[str] = []
    rates = dict(read.rates)
    if not read.is_of_penstock:
        rates |= _rates_of_query(storage, problems)
    names = list(dict.fromkeys([*read.ends, *rates]))
    overrides = RateOverrides(storage)
    inputs = []
    for name in names:
        override = RateOverride()
        try:
            override = overrides.get(name)
        except LogFormatError as error:
            problems.append(str(error))
        except PenstockError:  # a name that no file can have
            pass
        taken = streams_of(read.ends.get(name)) or {}
        lag = journal.lag(taken, now_ms)
        kept = rates.get(name, KeptRates(None, ()))
        inputs.append(
            InputStatus(
                name=name,
                lag_records=None if lag is None else lag[0],
                lag_ms=None if lag is None else lag[1],
                max_rate=override.max_rate,
                is_paused=override.paused,
                rate=_rate(kept),
                changes=kept.batches[-MOST_BATCHES:],
            )
        )
    return tuple(inputs), problems


def _rates_of_query(storage: Storage, problems: list[str]) -> Mapping[str, KeptRates]:
    try:
        return decode_rates(storage.read(RATES_FILE).decode())
    except NotFoundError:
        return {}
    except (PenstockError, UnicodeDecodeError) as error:
        problems.append(str(error))
        return {}


def _rate(kept: KeptRates) -> float | None:
    """Return the limit in effect: the controller's, as it would continue with after a restart."""
    with suppress(KeyError, TypeError, ValueError):
        return float(json.loads(kept.controller or "{}")["rate"])
    return kept.batches[-1].decision.rate if kept.batches else None

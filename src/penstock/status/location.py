"""Reads a location into values: live or dead, on a local disk or an object store.

Nothing is written, no lock is taken, and a program that runs is not disturbed. What cannot be read
is named among the problems, beside all that can.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime

from penstock.batched.inspection import inspect_path
from penstock.checkpoint.driver_lock import LOCK_NAME
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import list_folders
from penstock.errors import PenstockError
from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.receivers.control import process_exists
from penstock.status.batches import BatchReader
from penstock.status.inputs import read_inputs
from penstock.status.model import InputStatus, LocationStatus, LossStatus, Process
from penstock.status.places import Place, find_place
from penstock.status.streams import ReadStreams, loss_statuses, read_streams
from penstock.storage import FileInfo, Storage


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

    def read(self) -> LocationStatus:
        """Return its status now.

        Raises:
            ConfigError: there is no such folder, or it is not a location.
            StorageError: it cannot be listed.
        """
        now_ms = time.time_ns() // 1_000_000
        place = find_place(self._path)
        journal = ReadStreams() if place.journal is None else read_streams(place.journal, now_ms)
        status = _of_journal(place, self.name, journal, now_ms)
        if place.kind == "program":
            return self._with_batches(status, place.storage, journal)
        if place.kind == "batched":
            return _with_topics(replace(status, process=_holder(place.storage)), self._path)
        return status

    def _with_batches(
        self, status: LocationStatus, storage: Storage, journal: ReadStreams
    ) -> LocationStatus:
        checkpoint = Checkpoint(storage, list_folders(storage, ("offsets", "commits")))
        read = self._batches.read(checkpoint)
        inputs, problems = read_inputs(storage, read, journal, status.read_ms)
        losses, lost = _losses_of_inputs(storage, problems)
        return replace(
            status,
            name=read.name or status.name,
            failure=read.failure,
            kind="program" if read.is_of_penstock or not read.batches else "query",
            id=_read_id(storage),
            process=read.process,
            spark_ui=read.spark_ui,
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


def _of_journal(place: Place, name: str, journal: ReadStreams, now_ms: int) -> LocationStatus:
    return LocationStatus(
        location=place.storage.url,
        name=name,
        kind=place.kind,
        read_ms=now_ms,
        id=None,
        process=None,
        spark_ui=None,
        batch_interval_ms=None,
        batches=(),
        earlier=0,
        committed=-1,
        inputs=(),
        streams=journal.streams,
        losses=(),
        next=None,
        problems=journal.problems,
        dead_letters=journal.dead_letters,
    )


def _read_id(storage: Storage) -> str | None:
    return Checkpoint(storage, {METADATA: FileInfo(METADATA)}).read_id()


def _losses_of_inputs(
    storage: Storage, problems: list[str]
) -> tuple[tuple[LossStatus, ...], dict[str, int]]:
    """Return the losses of inputs without a journal, such as Kafka topics, and their records."""
    found: list[LossStatus] = []
    lost: dict[str, int] = {}
    for entry in storage.list("sources"):
        if entry.is_folder:
            try:
                losses = read_losses(storage, source_folder(entry.name))
                lost[entry.name] = sum(each.records.count for each in losses)
                found += loss_statuses(entry.name, losses)
            except PenstockError as error:
                problems.append(str(error))
    return tuple(found), lost


def _holder(storage: Storage) -> Process | None:
    """Return the process that last took the lock of batches; an object store has no lock."""
    try:
        holder = json.loads(storage.read(LOCK_NAME))
        host, pid = str(holder["host"]), int(holder["pid"])
        since_ms = int(1000 * datetime.fromisoformat(holder["since"]).timestamp())
    except (PenstockError, KeyError, TypeError, ValueError):  # not there, or being written
        return None
    return Process(host, pid, process_exists(host, pid, since_ms))


def _with_topics(status: LocationStatus, path: str) -> LocationStatus:
    found = inspect_path(path)
    inputs = [InputStatus(topic.topic, None, None, None, False, None) for topic in found.topics]
    newest = [topic.newest for topic in found.topics if topic.newest is not None]
    return replace(
        status,
        inputs=tuple(inputs),
        committed=max(newest, default=-1),
    )

"""The checks of ``penstock doctor`` on places: folders, stores, brokers and executors.

Each is tried as a program uses it. A folder or an object store gets a program's own steps: create,
create again (which must be refused), read, list, delete. Kafka is asked as a driver asks. Executors
get the task that a program's start runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.kafka_conf import client_settings
from penstock.cli.machine import CheckResult
from penstock.errors import AlreadyExistsError, PenstockError, StorageError
from penstock.storage import Storage, open_storage

_FOLDER = "penstock-doctor"
_ROUNDS = 5
_WANTED_MS = 200


def check_folder(path: Path) -> list[CheckResult]:
    """Check a folder, or the nearest one above it if it is missing; nothing is left there."""
    path = path.absolute()
    folder = next(each for each in [path, *path.parents] if each.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=f".{_FOLDER}-", dir=folder) as scratch:
            return _try_out(str(path), scratch, "files")
    except OSError as error:
        refused = StorageError(
            f"{error.strerror or error}: {folder}",
            operation="check folder",
            hint="name another folder, or let this user write in this one",
        )
        return [_reached(str(path), refused)]


def check_store(url: str) -> list[CheckResult]:
    """Check an object store, or another remote file system; nothing is left there."""
    return _try_out(url, url, f"{_FOLDER}/{uuid.uuid4().hex}")


def _try_out(where: str, url: str, folder: str) -> list[CheckResult]:
    """Try a folder of a store, which the report calls ``where``."""
    try:
        storage = open_storage(url)
    except PenstockError as error:
        return [_reached(where, error)]
    try:
        return _tried(where, storage, folder)
    except PenstockError as error:
        return [_reached(where, error)]
    finally:
        _remove(storage, folder)


def _tried(where: str, storage: Storage, folder: str) -> list[CheckResult]:
    times_ms = []
    for number in range(_ROUNDS):
        began_s = time.perf_counter()
        storage.create(f"{folder}/{number}", b"x" * 200)
        times_ms.append((time.perf_counter() - began_s) * 1000)
    listed = [entry.name for entry in storage.list(folder)]
    is_same = storage.read(f"{folder}/0") == b"x" * 200
    median_ms = statistics.median(times_ms)
    return [
        _reached(where, None),
        _exclusive(storage, f"{folder}/0"),
        CheckResult(
            name="read and list",
            ok=is_same and listed == [str(number) for number in range(_ROUNDS)],
            found="what was written" if is_same else "something else",
            wanted="what was written, at once",
            hint="the store is not consistent: penstock needs what S3, GCS and Azure promise",
        ),
        CheckResult(
            name="small file",
            ok=median_ms <= _WANTED_MS,
            found=f"{median_ms:.1f} ms",
            wanted=f"<={_WANTED_MS} ms",
            hint="every batch waits for two of these; choose a faster disk, or a nearer store",
            needed=False,
        ),
    ]


def _exclusive(storage: Storage, path: str) -> CheckResult:
    try:
        storage.create(path, b"again")
        is_refused = False
    except AlreadyExistsError:
        is_refused = True
    return CheckResult(
        name="exclusive create",
        ok=is_refused,
        found="yes" if is_refused else "no: a file was replaced",
        wanted="yes: two drivers must not both plan a batch",
        hint="the store ignores conditional writes (If-None-Match): use one that has them",
    )


def _reached(url: str, error: PenstockError | None) -> CheckResult:
    return CheckResult(
        name="store",
        ok=error is None,
        found=url if error is None else error.message,
        wanted="a place to create, read, list and delete files",
        hint=(error and error.hint)
        or "check the URL, the credentials and the extra (penstock-spark[s3])",
    )


def _remove(storage: Storage, folder: str) -> None:
    try:
        storage.delete_all(storage.find(folder))
    except PenstockError:  # the checks say what fails
        return


def check_brokers(brokers: str | None, conf: Sequence[str]) -> CheckResult:
    """Ask Kafka's brokers for their topics, with a program's client settings."""
    error: PenstockError | None = None
    found = ""
    try:
        settings = client_settings(brokers, conf)
        from penstock.kafka.brokers import partition_facts  # needs confluent-kafka

        parts = partition_facts(settings)
        topics = {part.rpartition("/")[0] for part in parts}
        found = f"{len(topics)} topics, {len(parts)} partitions"
    except PenstockError as e:
        error = e
    return CheckResult(
        name="Kafka",
        ok=error is None,
        found=found if error is None else error.message,
        wanted="brokers that answer and let this client see topics",
        hint=(error and error.hint) or "",
    )


def check_executors(master: str, url: str) -> CheckResult:
    """Run a task on each executor of a cluster that creates and reads files at a path."""
    from pyspark import SparkConf, SparkContext

    from penstock.driver.shared_location import check_shared

    error: Exception | None = None
    try:
        conf = SparkConf().setMaster(master).setAppName("penstock doctor")
        sc = SparkContext(conf=conf.set("spark.ui.enabled", "false"))
        try:
            check_shared(sc, open_storage(url))
        finally:
            sc.stop()
    except Exception as e:  # Spark's own are many
        error = e
    return CheckResult(
        name="shared path",
        ok=error is None,
        found=f"every executor of {master} shares {url}"
        if error is None
        else getattr(error, "message", str(error)),
        wanted="executors that see the driver's files, and the driver theirs",
        hint=getattr(error, "hint", None) or "see the log of the master, and of its executors",
    )

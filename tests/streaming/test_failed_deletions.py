"""A storage that refuses to delete costs a program a warning and another try, and no batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.errors import StorageError
from penstock.storage import Storage
from penstock.streaming import StreamingContext
from penstock.streaming.context import context
from penstock.streaming.recovery.location_storage import open_location
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import eventually

pytestmark = pytest.mark.spark

KINDS = ["offsets/*", "commits/*", "*.parquet", "rdds/marks/*"]
"""What a program deletes: log entries, blocks of the journal, marks of RDD checkpoints."""
FAILURES = 2


class Refusals:
    """Refuses the first deletions of each kind."""

    def __init__(self) -> None:
        self.paths: dict[str, list[Path]] = {kind: [] for kind in KINDS}
        self._lock = threading.Lock()

    def open(self, place: str, file_manager: None) -> Storage:
        return self._wrap(open_location(place))

    def _wrap(self, inner: Storage) -> Storage:
        root = Path(inner.url.removeprefix("file://"))
        storage = FaultyStorage(inner, before=lambda operation: self._before(root, operation))
        storage.open_folder = lambda folder: self._wrap(inner.open_folder(folder))  # type: ignore[method-assign]
        return storage

    def are_over(self) -> bool:
        """Whether deletions of each kind were refused, and all of these were done later."""
        refused = [path for paths in self.paths.values() for path in paths]
        all_kinds = len(refused) == FAILURES * len(KINDS)
        return all_kinds and not any(path.exists() for path in refused)

    def _before(self, root: Path, operation: Operation) -> None:
        if operation.kind != "delete":
            return
        for kind in filter(lambda kind: fnmatchcase(operation.path, kind), KINDS):
            with self._lock:
                refuse = len(self.paths[kind]) < FAILURES
                if refuse:
                    self.paths[kind].append(root / operation.path)
            if refuse:
                raise StorageError("as ordered", operation="delete", path=operation.path)


def test_what_cannot_be_deleted_is_warned_of_and_tried_again(
    sc: SparkContext,
    clock: ManualClock,
    tmp_path: Path,
    retain: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals()
    monkeypatch.setattr(context, "open_location", refusals.open)
    retain(1)
    log = tmp_path / "app.log"
    log.touch()
    ssc = StreamingContext(sc, 1, clock=clock)
    ssc._recover = "program"
    ssc.checkpoint(str(tmp_path / "location"))
    seen: list[str] = []
    lines = ssc.tailStream(str(log), name="lines").map(str.upper).checkpoint(1)
    lines.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    sent: list[str] = []

    def all_deleted() -> bool:
        sent.append(f"LINE {len(sent)}")
        with log.open("a") as file:
            file.write(sent[-1].lower() + "\n")
        assert not any(info.failed for info in stepper.step())
        return refusals.are_over()

    def seen_all() -> bool:
        assert not any(info.failed for info in stepper.step())
        return seen == sent

    assert eventually(all_deleted), refusals.paths
    assert eventually(seen_all), seen
    ssc.stop(stopSparkContext=False)
    assert "Old log entries cannot be deleted now; the deletion will be retried" in caplog.text
    assert caplog.text.count("as ordered") >= len(KINDS) * FAILURES

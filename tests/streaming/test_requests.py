"""What a program's batch costs on an object store: all requests of its driver.

Counted are the operations of the storages, which are one request each (tests/storage/test_s3.py),
in a program that reads a journal with ``foreachBatch``. Beside those of its journal
(tests/journal/test_requests.py) a batch

- creates offsets/N, lists offsets, creates commits/N,
- deletes one old entry of each log, once there are more than are retained.

Not counted are the tasks' own reads, one for each block; the graph checkpoint, once a minute; and
what is polled by the second, whatever the batches are: one order for each input's rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.journal import JournalStream, JournalWriter, RecordFormat
from penstock.storage import open_storage
from penstock.storage.local import LocalStorage
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.waiting import eventually

RETAIN = 3
JOURNAL_IDLE = Counter(list=3)
JOURNAL_FIVE_BLOCKS = Counter(list=4, read=5, create=1, delete_all=1)
LOCATION = Counter(create=2, list=1, delete_all=2)


class Requests:
    """Counts what the storages of this process do."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def count(self, call: Callable[..., Any]) -> Callable[..., Any]:
        kind = {"names": "list"}.get(call.__name__, call.__name__)

        def counted(storage: LocalStorage, path: Any = "", *arguments: Any, **options: Any) -> Any:
            if path != [] and not str(path).startswith("rate/"):
                self.done[kind] += 1
            return call(storage, path, *arguments, **options)

        return counted


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    found = Requests()
    for call in (
        LocalStorage.create,
        LocalStorage.read,
        LocalStorage.list,
        LocalStorage.names,
        LocalStorage.delete_all,
    ):
        monkeypatch.setattr(LocalStorage, call.__name__, found.count(call))
    return found


@pytest.mark.spark
def test_all_requests_of_an_idle_batch_and_of_one_over_five_new_blocks(
    sc: SparkContext,
    clock: ManualClock,
    tmp_path: Path,
    retain: Callable[[int], None],
    requests: Requests,
) -> None:
    retain(RETAIN)
    journal = open_storage(tmp_path / "journal")
    stream = JournalStream.create(journal, "lines", RecordFormat("string"))
    counts: list[int] = []
    ssc = StreamingContext(sc, 1, clock=clock)
    ssc.checkpoint(str(tmp_path / "location"))
    read = ssc.journalStream("lines", str(tmp_path / "journal"))
    read.foreachBatch(lambda df, batch_id: counts.append(df.count()))
    stepper = Stepper(ssc, clock)

    def oldest_commit() -> int:
        return min(int(path.name) for path in (tmp_path / "location/commits").glob("[0-9]*"))

    def step_and_clean_up() -> None:
        """Wait for the last request of a batch, too: it deletes an old entry of the commit log."""
        before = oldest_commit()
        stepper.step()
        assert eventually(lambda: oldest_commit() > before)

    with closing(JournalWriter(stream, "r0")) as writer:
        ssc.start()
        for _ in range(2 * RETAIN):
            publish(writer, 5)
            stepper.step()
        publish(writer, 5)
        step_and_clean_up()
        publish(writer, 5)
        requests.done.clear()
        step_and_clean_up()
        busy = requests.done.copy()
        for _ in range(2 * RETAIN):
            step_and_clean_up()
        requests.done.clear()
        step_and_clean_up()
        idle = requests.done.copy()
        ssc.stop(stopSparkContext=False)
    assert counts == [5] * (2 * RETAIN + 2) + [0] * (2 * RETAIN + 1)
    assert idle == JOURNAL_IDLE + LOCATION
    assert busy == JOURNAL_FIVE_BLOCKS + LOCATION


def publish(writer: JournalWriter, blocks: int) -> None:
    for _ in range(blocks):
        writer.append("a")
        writer.flush()

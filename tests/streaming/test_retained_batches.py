"""What the offset log says of how far back batches can be processed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.engine.batch_log import BatchLog

RETAIN = 3


class Run:
    """One run of a program with one input: each batch takes one record more."""

    def __init__(self, root: Path) -> None:
        self.location = CheckpointLocation(root)
        recovery = self.location.acquire(RETAIN)
        self.next_id = recovery.next_batch_id
        self.log = BatchLog(
            self.location,
            recovery,
            inputs=["lines"],
            operators=[],
            outputs={},
            told=[],
            unnamed={"input": [], "operator": [], "output": []},
        )

    def step(self) -> None:
        """Plan a batch, commit it, and clear up behind it, as the engine does."""
        start, end = offset(self.next_id), offset(self.next_id + 1)
        batch = self.log.plan(1000 * self.next_id, (SourceRange(start, end),), {}, None)
        self.next_id += 1
        self.location.commit(batch.id)
        self.check()
        for released in self.log.take_confirmed():
            self.log.notified(released)
        self.log.retire()
        self.check()

    def check(self) -> None:
        """Compare with what is in the log: no batch that it tells of begins before."""
        oldest = self.log.oldest_start(0)
        ids = self.location.offsets.batch_ids()
        starts = [n for n in ids if n == 0 or n - 1 in ids]
        assert records(oldest) <= min(starts, default=0)


def offset(records: int) -> SourceOffset:
    return {"lines": {"r0-00000000": records}} if records else None


def records(offset: SourceOffset) -> int:
    return 0 if offset is None else int(offset["lines"]["r0-00000000"])


@pytest.mark.parametrize("batches_a_run", [1, 2, 5, 20])
def test_what_the_log_tells_of_is_retained_over_restarts(
    tmp_path: Path, batches_a_run: int
) -> None:
    for _ in range(4):
        run = Run(tmp_path)
        run.check()
        for _ in range(batches_a_run):
            run.step()
        if batches_a_run > RETAIN + 1:  # the run's own entries are the oldest: no more is retained
            oldest = run.log.oldest_start(0)
            assert records(oldest) == run.location.offsets.batch_ids()[0] + 1
        run.location.release()


def test_an_entry_that_cannot_be_read_retains_everything(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(10):
        run.step()
    run.location.release()
    oldest = min((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    oldest.write_text("v1\n{")
    run = Run(tmp_path)
    assert run.log.oldest_start(0) is None
    for _ in range(RETAIN + 2):
        run.step()
    assert run.log.oldest_start(0) is not None

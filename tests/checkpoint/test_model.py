"""Any order of plan, commit, retire, failure and crash, against a model of two dicts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.checkpoint import CheckpointLocation, CommitMetadata, OffsetSeq
from penstock.errors import StorageError
from penstock.storage import open_storage
from tests.storage.faulty_storage import FaultyStorage, OperationKind

from .conftest import as_given, offsets_of

pytestmark = pytest.mark.slow


class Driver(RuleBasedStateMachine):
    """Drives one location through crashes; ``planned`` and ``committed`` are what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        self.planned: dict[int, OffsetSeq] = {}
        self.committed: dict[int, CommitMetadata] = {}
        self.kept_from = 0
        self.retain = 1
        self.start()

    def start(self) -> None:
        self.storage = FaultyStorage(open_storage(self.place))
        self.location = CheckpointLocation(self.storage)
        plan = self.location.acquire(self.retain)
        assert plan.rerun == tuple(self.uncommitted())
        assert plan.next_batch_id == len(self.planned)
        kept = self.location.offsets.batch_ids()  # a start removes what a purge had not come to
        assert (kept[0] if kept else 0) >= self.kept_from
        self.kept_from = kept[0] if kept else 0
        self.check_kept()

    def uncommitted(self) -> list[int]:
        return sorted(self.planned.keys() - self.committed.keys())

    def teardown(self) -> None:
        self.location.release()
        shutil.rmtree(self.place)

    @rule(sources=st.integers(1, 3))
    def plan(self, sources: int) -> None:
        batch_id = len(self.planned)
        self.location.plan(batch_id, offsets_of(batch_id, sources))
        self.planned[batch_id] = offsets_of(batch_id, sources)

    @precondition(lambda self: self.uncommitted())
    @rule(data=st.data(), watermark_ms=st.integers(0, 9))
    def commit(self, data: st.DataObject, watermark_ms: int) -> None:
        batch_id = data.draw(st.sampled_from(self.uncommitted()))
        self.location.commit(batch_id, watermark_ms)
        self.committed[batch_id] = CommitMetadata(watermark_ms)

    @precondition(lambda self: self.kept_from < len(self.planned))
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        batch_id = data.draw(st.integers(self.kept_from, len(self.planned) - 1))
        if batch_id in self.committed:
            self.location.commit(batch_id, self.committed[batch_id].next_batch_watermark_ms)

    @rule()
    def retire(self) -> None:
        self.kept_from = max(self.kept_from, self.location.retire())
        self.check_kept()

    def check_kept(self) -> None:
        assert all(batch_id >= self.kept_from for batch_id in self.uncommitted())
        if self.committed:
            assert max(self.committed) >= self.kept_from
            assert self.location.offsets.batch_ids()[0] == self.kept_from

    @rule(after=st.booleans())
    def plan_that_fails(self, after: bool) -> None:
        """Such a batch may be planned or not: the next driver goes by what it finds."""
        self.storage.fail("create", path="offsets/*", after=after)
        batch_id = len(self.planned)
        try:
            self.location.plan(batch_id, offsets_of(batch_id))
        except StorageError:
            if after:
                self.planned[batch_id] = offsets_of(batch_id)
        self.crash()

    @rule(kind=st.sampled_from(["delete", "list"]), nth=st.integers(1, 6), after=st.booleans())
    def retire_that_fails(self, kind: OperationKind, nth: int, after: bool) -> None:
        self.storage.fail(kind, nth=nth, after=after)
        try:
            self.kept_from = max(self.kept_from, self.location.retire())
        except StorageError:
            # How far it came does not matter, as long as nothing is missing that is needed.
            kept = self.location.offsets.batch_ids()
            self.kept_from = max(self.kept_from, kept[0] if kept else 0)
        self.crash()

    @rule(retain=st.integers(1, 3))
    def crash(self, retain: int = 1) -> None:
        """The process ends, and with it its lock; a new driver starts."""
        self.location.release()
        self.retain = retain
        self.start()

    @invariant()
    def logs_are_as_the_model_says(self) -> None:
        reader = CheckpointLocation(open_storage(self.place))
        assert reader.offsets.batch_ids() == tuple(range(self.kept_from, len(self.planned)))
        for batch_id in reader.offsets.batch_ids():
            assert as_given(reader.offsets.get(batch_id)) == self.planned[batch_id]
        for batch_id in reader.commits.batch_ids():
            assert reader.commits.get(batch_id) == self.committed[batch_id]
        plan = reader.recover()
        assert plan.rerun == tuple(self.uncommitted())
        assert plan.next_batch_id == len(self.planned)
        assert reader.offsets.orphans() == reader.commits.orphans() == ()


def test_driver_against_model() -> None:
    run_state_machine_as_test(Driver, settings=settings(max_examples=30, stateful_step_count=20))

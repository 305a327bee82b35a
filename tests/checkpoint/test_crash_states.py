"""Power cuts: every state that a disk may legally be left in while a driver works.

Checksum files are written without these system calls; test_checksum tries what may be left of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.storage.local import LocalStorage
from tests.storage.crash_states import RecordingSyscalls, crash_states

from .conftest import as_given, offsets_of

pytestmark = pytest.mark.slow


def test_each_legal_state_recovers_to_what_was_promised(tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    recorder = RecordingSyscalls(live)
    promises: list[tuple[int, str, int]] = []

    def promise(what: str, batch_id: int) -> None:
        promises.append((len(recorder.steps), what, batch_id))

    location = CheckpointLocation(LocalStorage(live / "location", syscalls=recorder))
    location.acquire(1)
    with ExitStack() as stack:
        stack.callback(location.release)
        for batch_id in range(5):
            promise("may be planned", batch_id)
            location.plan(batch_id, offsets_of(batch_id))
            promise("planned", batch_id)
            if batch_id != 1:
                promise("may be committed", batch_id)
                location.commit(batch_id)
                promise("committed", batch_id)
        location.commit(1)
        promise("committed", 1)
        promise("may be planned", 5)
        location.plan(5, offsets_of(5))
        promise("planned", 5)
        location.retire()

    looked = 0
    for calls in range(len(recorder.steps) + 1):
        facts: dict[str, set[int]] = {
            kind: {i for count, what, i in promises if what == kind and count <= calls}
            for kind in ("may be planned", "planned", "may be committed", "committed")
        }
        for state in crash_states(recorder.steps[:calls]):
            looked += 1
            base = tmp_path / f"crash{looked}"
            base.mkdir()
            state.restore(base)
            check(CheckpointLocation(LocalStorage.attach(str(base / "location"))), facts)
    assert looked > 100


def check(location: CheckpointLocation, facts: dict[str, set[int]]) -> None:
    plan = location.recover()
    assert plan.next_batch_id in (len(facts["planned"]), len(facts["may be planned"]))
    rerun = set(plan.rerun)
    assert facts["planned"] - facts["may be committed"] - {1} <= rerun
    assert not rerun & facts["committed"]
    for batch_id in location.offsets.batch_ids():
        assert as_given(location.offsets.get(batch_id)) == offsets_of(batch_id)
    for batch_id in location.commits.batch_ids():
        assert location.commits.get(batch_id) is not None

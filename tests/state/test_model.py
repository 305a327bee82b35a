"""A stateful model: batches, crashes at any point, other executors, slow attempts, retention."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.state import PartitionVersion, Version, VersionLog, layers, read_version

from .helpers import OPERATOR, Model, Runner

RECORDS = st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 4)), max_size=6)
TIMEOUT_MS = 5


class StateMachine(RuleBasedStateMachine):
    """One partition and its versions, driven as a driver does it, beside a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.time_ms = 0
        self.states: dict[int, dict[Any, int]] = {}  # of each version that was published
        self.outputs: dict[int, list[Any]] = {}
        self.model = Model()
        self.runs = 0

    @initialize()
    def start_driver(self) -> None:
        self.restart()

    @rule()
    def restart(self) -> None:
        """The driver is killed, and started again: its copies are of no use any more."""
        self.runs += 1
        self.runner = Runner(self.place, f"{self.runs:08x}")
        self.log = VersionLog(self.runner.storage, OPERATOR)

    @rule(records=RECORDS, executor=st.sampled_from("AB"), slow=st.sampled_from("ABC"))
    def batch(self, records: list[tuple[int, int]], executor: str, slow: str) -> None:
        """Two attempts, the second with other records, as a function of chance would have it."""
        self.time_ms += 1
        tip = self.attempt(records, executor)
        other = self.attempt([*records, (99, 99)], slow)
        # Spark takes the one that ended first, which said that it left nothing or its delta.
        self.log.publish(Version(self.time_ms, (PartitionVersion(tip),)))
        assert other in (tip, None) or tip == self.tip(before=self.time_ms)
        self.outputs[self.time_ms] = self.model.update(records, self.time_ms, TIMEOUT_MS)
        self.states[self.time_ms] = dict(self.model.sums)

    @rule(records=RECORDS, executor=st.sampled_from("AB"))
    def batch_that_is_cut_off(self, records: list[tuple[int, int]], executor: str) -> None:
        """An attempt whose driver is killed before it publishes."""
        self.time_ms += 1
        self.attempt([*records, (99, 99)], executor)
        self.time_ms -= 1
        self.restart()

    @rule(executor=st.sampled_from("AB"))
    def lose_executor(self, executor: str) -> None:
        shutil.rmtree(self.place / executor, ignore_errors=True)

    @rule(kept=st.integers(0, 4))
    def retire(self, kept: int) -> None:
        self.log.retire(self.time_ms - kept)

    @rule(executor=st.sampled_from("ABC"))
    def look_at_every_version(self, executor: str) -> None:
        reader = Runner(self.place, f"{self.runs:08x}", executor)
        for time_ms in self.log.times:
            tip = read_version(self.runner.storage, OPERATOR, time_ms).tips[0]
            assert reader.state(tip) == self.states[time_ms]
            assert reader.outputs(tip, time_ms) == self.outputs[time_ms]

    @invariant()
    def files_are_bounded(self) -> None:
        if self.log.times:
            layers_at_most = 3 * layers.FAN_IN
            unfinished = self.runs + len(self.log.times)
            assert len(self.runner.files()) <= 3 * layers_at_most + unfinished

    def attempt(self, records: list[tuple[int, int]], executor: str) -> str | None:
        oldest = self.log.times[0] if self.log.times else None
        return Runner(self.place, f"{self.runs:08x}", executor).batch(
            self.tip(before=self.time_ms),
            records,
            self.time_ms,
            timeout_ms=TIMEOUT_MS,
            oldest_tip=None if oldest is None else self.tip_of(oldest),
        )

    def tip(self, before: int) -> str | None:
        newest = max((t for t in self.log.times if t < before), default=None)
        return None if newest is None else self.tip_of(newest)

    def tip_of(self, time_ms: int) -> str | None:
        return read_version(self.runner.storage, OPERATOR, time_ms).tips[0]

    def teardown(self) -> None:
        shutil.rmtree(self.place)


@pytest.mark.slow
def test_state_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "FAN_IN", 3)
    monkeypatch.setattr(layers, "_LEAST_CHANGES_BYTES", 4000)
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        StateMachine,
        settings=settings(max_examples=15, stateful_step_count=30),
    )

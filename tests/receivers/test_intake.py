"""What a source that may not wait is told: how long to stay away."""

from __future__ import annotations

from penstock.journal import Bounds, JournalWriter, WriterQuota
from penstock.receivers.supervisor.intake import Intake
from penstock.testing import ManualClock
from tests.journal.helpers import PATIENT, memory_stream

POLL_MS = 200


def test_without_room_a_source_stays_away_for_as_long_as_there_has_been_none() -> None:
    clock = ManualClock(1_000_000)
    intake = Intake(200, POLL_MS, clock)
    intake.stopped.clear()
    bounds = Bounds(max_lag_records=2)
    writer = JournalWriter(memory_stream(), "r0", policy=PATIENT, bounds=bounds)
    quota = WriterQuota(writer, bounds)

    def wait_ms() -> int:
        return intake.try_store(writer, "x", None, None)

    assert wait_ms() == POLL_MS  # nothing may be stored before the first refresh
    clock.advance(3_000)
    assert wait_ms() == 3_000
    clock.advance(90_000)
    assert wait_ms() == 30_000
    clock.set_wall(-95_000)
    assert wait_ms() == 30_000
    assert intake.refused == 4
    quota.refresh()
    assert wait_ms() == 0
    assert intake.refused == 4
    clock.advance(1_000)
    while (wait := wait_ms()) == 0:
        pass
    assert wait == POLL_MS  # there was room meanwhile
    writer.abandon()

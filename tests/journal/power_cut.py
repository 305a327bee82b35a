"""A power cut at every moment of a writer's life: what was acked must be there, and be whole."""

from __future__ import annotations

from pathlib import Path

from penstock.journal import JournalStream, JournalWriter, RecordFormat
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from tests.journal.helpers import PATIENT, read_all
from tests.storage.crash_states import RecordingSyscalls, crash_states


class _NoSync(Syscalls):
    """For recovery, which is not what is cut: the same without waiting for the disk."""

    def fsync(self, fd: int) -> None:
        pass


def check_power_cuts(folder: Path) -> int:
    """Live two lives on a recorded disk, then check each state that a cut may leave.

    Returns:
        How many states there were.
    """
    base = folder / "recorded"
    base.mkdir()
    recorder = RecordingSyscalls(base)
    acked_at = _live_twice(LocalStorage(base / "journal", syscalls=recorder), recorder)
    states = 0
    for cut in range(1, len(recorder.steps) + 1):
        acked = [number for number, step in enumerate(acked_at) if step <= cut]
        for state in crash_states(recorder.steps[:cut]):
            place = folder / f"state-{states}"
            state.restore(place)
            _check(place / "journal", acked)
            states += 1
    return states


def _live_twice(storage: LocalStorage, recorder: RecordingSyscalls) -> list[int]:
    """Store 0, 1 and, after a takeover, 2; return after how many steps each was acked."""
    stream = JournalStream.create(storage, "lines", RecordFormat("string"))
    acked_at: list[int] = []

    def note() -> None:
        acked_at.append(len(recorder.steps))

    first = JournalWriter(stream, "r0", policy=PATIENT)
    for number in range(2):
        first.append(str(number), position=number + 1, ack=note)
        first.flush()
    first.abandon()
    second = JournalWriter(stream, "r0", policy=PATIENT)
    second.append("2", position=3, ack=note)
    second.close()
    return acked_at


def _check(journal: Path, acked: list[int]) -> None:
    """Recover as a receiver and a driver do."""
    stream = JournalStream.create(
        LocalStorage(journal, syscalls=_NoSync()), "lines", RecordFormat()
    )
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    position = writer.position or 0
    writer.append(str(position), position=position + 1)
    writer.close()
    records = list(map(int, read_all(stream)))
    assert records == list(range(position + 1))
    assert acked == records[: len(acked)]

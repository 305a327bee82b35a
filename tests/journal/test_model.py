"""The stateful model of tests.journal.machine, run by hypothesis."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.journal.machine import JournalMachine

pytestmark = pytest.mark.slow


def test_every_acked_record_is_in_exactly_one_batch() -> None:
    run_state_machine_as_test(
        JournalMachine, settings=settings(max_examples=60, stateful_step_count=40)
    )


@pytest.mark.soak
def test_every_acked_record_is_in_exactly_one_batch_in_many_lives() -> None:
    run_state_machine_as_test(
        JournalMachine,
        settings=settings(max_examples=2000, stateful_step_count=80),
    )

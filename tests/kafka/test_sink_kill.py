"""kill -9 in the middle of a batch that an exactly-once sink writes; it is completed elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.driver import Driver
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("sink_program.py")
IN_EACH = 251_000
"""More than a task reads: other slots must not make other tasks."""


@pytest.mark.storm
def test_a_batch_in_part_is_completed_with_other_slots(broker: Broker, tmp_path: Path) -> None:
    source = broker.create_topic("in-kill", partitions=2)
    target = broker.create_topic("out-kill")
    values = [b"%d" % number for number in range(2 * IN_EACH - 1)] + [b"kill"]
    for partition in (0, 1):
        start = partition * IN_EACH
        broker.produce(source, values[start : start + IN_EACH], partition=partition)
    arguments = [broker.address, source, target, str(tmp_path / "checkpoint"), str(tmp_path / "k")]
    errors = tmp_path / "stderr.txt"
    with (
        Driver(PROGRAM, ["local[1]", *arguments], errors, own_pythons=True) as first,
        Driver(
            PROGRAM, ["local[4]", *arguments], errors, own_pythons=True
        ) as second,  # starts meanwhile
    ):
        first.begin()
        assert first.process.wait() != 0, first.log()
        assert 0 < committed(broker, target).total() < len(values)
        second.begin()
        second.wait_records(1)
    assert committed(broker, target) == Counter(value.decode() for value in values)

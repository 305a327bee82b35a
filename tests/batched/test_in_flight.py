"""How far partitions are done while ranges of several batches are worked on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.batched.in_flight import InFlight
from penstock.kafka import KafkaRange


def test_a_partition_is_done_up_to_its_first_range_that_is_not() -> None:
    flights = InFlight()
    first, second = KafkaRange("t", 0, 5, 8), KafkaRange("t", 0, 8, 9)
    other = KafkaRange("t", 1, 0, 4)
    flights.begin([first, other])
    flights.begin([second])
    assert flights.done() == {"t/0": 5, "t/1": 0}
    assert flights.finish([second])  # the second batch, and nothing passes the first
    assert flights.done() == {"t/0": 5, "t/1": 0}
    assert not flights.finish([other])
    assert flights.finish([first])
    assert flights.done() == {"t/0": 9, "t/1": 4}
    assert not flights.ranges()


@given(st.data())
def test_any_order(data: st.DataObject) -> None:
    flights, ends = InFlight(), {"t/0": 0, "t/1": 0, "t/2": 0}
    batches: list[list[KafkaRange]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        partitions = data.draw(st.sets(st.integers(0, 2), min_size=1))
        batch = [KafkaRange("t", p, ends[f"t/{p}"], ends[f"t/{p}"] + 2) for p in partitions]
        ends |= {f"t/{r.partition}": r.end_offset for r in batch}
        batches.append(batch)
        flights.begin(batch)
    done: set[KafkaRange] = set()
    told = 0
    for each in data.draw(st.permutations([r for batch in batches for r in batch])):
        is_last = all(r in done for r in next(b for b in batches if each in b) if r != each)
        done.add(each)
        assert flights.finish([each]) == is_last
        told += is_last
        for name, end in flights.done().items():
            left = [r for b in batches for r in b if f"t/{r.partition}" == name and r not in done]
            assert end == min([r.start_offset for r in left], default=ends[name])
    assert told == len(batches)

"""Messages anywhere in memory, copied into Arrow columns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka import librdkafka
from penstock.kafka.librdkafka import MessageStruct
from penstock.kafka.messages import Messages

_Values = list[bytes | None]


class Memory:
    """What librdkafka has of some messages: structs, and bytes that lie about in any order."""

    def __init__(self, values: _Values, keys: _Values, order: Sequence[int], gap: int) -> None:
        held = [value for value in (*values, *keys) if value]
        self._bytes = ctypes.create_string_buffer(sum(map(len, held)) + gap * len(held) + 1)
        self._structs = [MessageStruct() for _ in values]
        self._empty = ctypes.create_string_buffer(b"")
        self._end = ctypes.addressof(self._bytes)
        for number in order:
            struct = self._structs[number]
            struct.offset = 10 * number
            struct.payload, struct.len = self._put(values[number], gap)
            struct.key, struct.key_len = self._put(keys[number], gap)

    def messages(self) -> Messages:
        addresses = [ctypes.addressof(struct) for struct in self._structs]
        return Messages.at(np.array(addresses, np.intp))

    def put(self, number: int, topic: int, partition: int) -> None:
        self._structs[number].rkt, self._structs[number].partition = topic, partition

    def fail(self, number: int, code: int) -> None:
        self._structs[number].err = code

    def _put(self, value: bytes | None, gap: int) -> tuple[int, int]:
        if not value:
            return 0 if value is None else ctypes.addressof(self._empty), 0
        at = self._end
        ctypes.memmove(at, value, len(value))
        self._end += len(value) + gap
        return at, len(value)


_VALUES = st.lists(
    st.tuples(*[st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=300))] * 2),
    max_size=12,
)


@given(_VALUES, st.randoms(), st.sampled_from([0, 9, 256, 257, 10_000]))
def test_values_and_keys_are_copied_from_where_they_lie(
    pairs: list[tuple[bytes | None, bytes | None]], chance, gap: int
) -> None:
    order = list(range(len(pairs)))
    chance.shuffle(order)
    values, keys = [value for value, _ in pairs], [key for _, key in pairs]
    memory = Memory(values, keys, order, gap)  # lives until the end
    messages = memory.messages()
    assert messages.values().type == pa.binary()
    assert messages.values().to_pylist() == values
    assert messages.keys().to_pylist() == keys
    assert messages.offsets().to_pylist() == [10 * number for number in range(len(pairs))]


def test_columns_outlive_the_messages() -> None:
    memory = Memory([b"first", b"second"], [b"k", None], [0, 1], gap=9)
    values = memory.messages().values()
    ctypes.memset(memory._bytes, 0, len(memory._bytes))
    assert values.to_pylist() == [b"first", b"second"]


def test_topics_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "topic_name", {1: b"a", 2: b"b"}.get)
    memory = Memory([b"0", b"1", b"2"], [None] * 3, range(3), gap=9)
    for number, (topic, partition) in enumerate([(1, 0), (2, 1), (1, 1)]):
        memory.put(number, topic, partition)
    assert memory.messages().topics().to_pylist() == [*"aba"]
    assert memory.messages().partitions().to_pylist() == [0, 1, 1]


def test_errors_are_told_from_records() -> None:
    memory = Memory([b"a", b"b", b"c", b"d"], [None] * 4, range(4), gap=9)
    memory.fail(2, KafkaError._TRANSPORT)
    messages = memory.messages()
    errors = [(at, error.code()) for at, error in messages.errors()]
    assert errors == [(20, KafkaError._TRANSPORT)]
    assert messages.records().values().to_pylist() == [b"a", b"b", b"d"]
    assert messages.records().before(30).values().to_pylist() == [b"a", b"b"]
    assert len(messages.before(0)) == 0

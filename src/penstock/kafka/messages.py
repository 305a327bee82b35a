"""Messages that lie in librdkafka's memory, copied into Arrow a column at a time.

confluent-kafka makes a Python object of each message, which takes longer than all that librdkafka
does for it. Here a column is gathered from the C structs at once.

Invariant: memory is read only where librdkafka says that something is (an address and a length),
and only until the messages are destroyed (``ConsumerHandle.messages``). A view spans what lies
between as well; that is never read. What leaves this file is a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_size_t, c_void_p
from functools import cached_property
from itertools import count, repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import KafkaError as ClientError

from penstock.kafka import librdkafka as c
from penstock.kafka.records import YEARS_MS

Headers = tuple[tuple[str, bytes | None], ...]
_Ints: TypeAlias = npt.NDArray[np.intp]
_WORD = np.dtype(np.intp).itemsize
_WORDS = np.arange(ctypes.sizeof(c.MessageStruct) // _WORD)
_STRUCT = np.dtype(c.MessageStruct)
_SMALL_GAP = 256
"""Bytes between two values that are rather copied, too, than make a copy of each value."""


class Messages:
    """Some messages in the order that they came, which is the order of each partition.

    Args:
        addresses: where librdkafka has them.
        structs: copies of what is there.
    """

    def __init__(self, addresses: _Ints, structs: npt.NDArray[Any]) -> None:
        self._addresses = addresses
        self._structs = structs

    @classmethod
    def at(cls, addresses: _Ints) -> Messages:
        """Return those at these addresses."""
        return cls(addresses, _structs_at(addresses))

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def last_offset(self) -> int:
        """The offset of the last of them."""
        return int(self._structs["offset"][-1])

    def topics(self) -> pa.Array:
        """Return the topics' names, as string."""
        handles, which = np.unique(self._structs["rkt"], return_inverse=True)
        return pa.array(map(_topic, handles), pa.string()).take(_int64(which))

    def partitions(self) -> pa.Array:
        """Return the partitions' numbers, as int32."""
        numbers = np.ascontiguousarray(self._structs["partition"])
        return pa.Array.from_buffers(pa.int32(), len(self), [None, pa.py_buffer(numbers)])

    def offsets(self) -> pa.Array:
        """Return the offsets, as int64."""
        return _int64(np.ascontiguousarray(self._structs["offset"]))

    def records(self) -> Messages:
        """Return those that are records."""
        return self._select(self._structs["err"] == 0)

    def errors(self) -> Iterator[tuple[int, ClientError]]:
        """Return the others, errors and that a partition ends, each with the offset there."""
        others = self._select(self._structs["err"] != 0)
        for address, struct in zip(others._addresses.tolist(), others._structs, strict=True):
            text = c.message_errstr(address) or b""
            error = ClientError(int(struct["err"]), text.decode(errors="replace"))
            yield int(struct["offset"]), error

    def before(self, end_offset: int) -> Messages:
        """Return those with offsets below an end."""
        return self._select(self._structs["offset"] < end_offset)

    def keys(self) -> pa.Array:
        """Return the keys, as binary."""
        return _copy_bytes(self._structs["key"], self._structs["key_len"])

    def values(self) -> pa.Array:
        """Return the values, as binary."""
        return _copy_bytes(self._structs["payload"], self._structs["len"])

    def timestamps_ms(self) -> pa.Array:
        """Return the timestamps, as int64."""
        return _int64(*self._times_ms())

    def timestamps(self) -> pa.Array:
        """Return the timestamps of years that Python has, as timestamp; null for others."""
        times_ms, missing = self._times_ms()
        missing |= (times_ms < YEARS_MS.start) | (times_ms >= YEARS_MS.stop)
        return _int64(times_ms, missing).cast(pa.timestamp("ms", "UTC"))

    def timestamp_types(self) -> pa.Array:
        """Return what the timestamps are, as Java's client numbers it: see ``SOURCE_COLUMNS``."""
        _, kinds = self._stamps
        return _int64(kinds.astype(np.int64) - 1)

    def _times_ms(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the timestamps, and which of them are missing."""
        times_ms, kinds = self._stamps
        return times_ms, kinds == TIMESTAMP_NOT_AVAILABLE

    @cached_property
    def _stamps(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the timestamps, and what librdkafka says that they are."""
        kinds = np.empty(len(self), np.int32)
        into = count(kinds.ctypes.data, kinds.itemsize)
        found = map(c.message_timestamp, self._addresses.tolist(), into)
        return np.fromiter(found, np.int64, len(self)), kinds

    def headers(self) -> list[Headers]:
        """Return the headers of each.

        Bytes of a name that are not UTF-8 become U+FFFD, as in Java: any producer can write them.
        """
        of_one = c_void_p()
        into = ctypes.addressof(of_one)
        return [
            () if missing else tuple(_read_headers(of_one))
            for missing in map(c.message_headers, self._addresses.tolist(), repeat(into))
        ]

    def _select(self, wanted: npt.NDArray[np.bool_]) -> Messages:
        return self if wanted.all() else Messages(self._addresses[wanted], self._structs[wanted])


def _topic(handle: Any) -> str:
    """Return a topic's name; what is told of none has an empty one."""
    return (c.topic_name(int(handle)) or b"").decode() if handle else ""


def _read_headers(of_one: c_void_p) -> Iterator[tuple[str, bytes | None]]:
    """Return the headers at an address, as ``Messages.headers``."""
    name, value, size = c_char_p(), c_void_p(), c_size_t()
    for number in count():
        if c.header_get(of_one, number, byref(name), byref(value), byref(size)):
            return
        held = None if value.value is None else ctypes.string_at(value.value, size.value)
        yield (name.value or b"").decode(errors="replace"), held


def _view(first: int, last: int, dtype: Any) -> npt.NDArray[Any]:
    """Return the memory from one address to another."""
    return np.frombuffer(pa.foreign_buffer(first, last - first), dtype)


def _structs_at(addresses: _Ints) -> npt.NDArray[Any]:
    """Return copies of the structs at some addresses."""
    if not len(addresses):
        return np.empty(0, _STRUCT)
    first, last = int(addresses.min()), int(addresses.max())
    words = _view(first, last + _STRUCT.itemsize, np.intp)
    rows: npt.NDArray[np.intp] = words[((addresses - first) // _WORD)[:, None] + _WORDS]
    return rows.view(_STRUCT)[:, 0]


def _int64(values: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers; ``pa.array`` would first import pandas, which takes 0.3 s."""
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(values), [valid, pa.py_buffer(values)])


def _copy_bytes(addresses: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> pa.Array:
    """Return the bytes at some addresses, null where the address is 0.

    Most lie in one fetch's buffer, in order, with the head of a record between two of them: so
    stretches of memory are copied, with the gaps as elements that are not taken.
    """
    missing = addresses == 0
    sizes = np.where(missing, 0, lengths).astype(np.int64)
    held = np.flatnonzero(sizes)
    held = held[np.argsort(addresses[held])]
    data, starts = _copy_stretches(addresses[held].astype(np.int64), sizes[held])
    offsets = np.full(2 * len(held) + 2, len(data))
    offsets[:-2:2], offsets[1:-2:2] = starts, starts + sizes[held]
    elements = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    wanted = np.full(len(addresses), len(elements) - 1)  # the last one is empty
    wanted[held] = np.arange(0, 2 * len(held), 2)
    return elements.take(_int64(wanted, missing)).cast(pa.binary())


def _copy_stretches(
    starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return copies of memory with all these values, and where in them each begins.

    Args:
        starts: addresses, ascending.
        sizes: in bytes, none of them 0.
    """
    if not len(starts):
        return np.empty(0, np.uint8), starts
    ends = starts + sizes
    gaps = starts[1:] - ends[:-1]
    left_out = np.where(gaps > _SMALL_GAP, gaps, 0)
    cuts = np.flatnonzero(left_out)
    firsts = starts[np.append(0, cuts + 1)] - starts[0]
    lasts = ends[np.append(cuts, len(ends) - 1)] - starts[0]
    memory = _view(int(starts[0]), int(ends[-1]), np.uint8)
    stretches = [memory[a:b] for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    return np.concatenate(stretches), starts - starts[0] - np.append(0, np.cumsum(left_out))

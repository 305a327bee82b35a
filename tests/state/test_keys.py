"""Keys: what is one key has one identity, and nothing else has."""

from __future__ import annotations

from collections import namedtuple
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateKeyError
from penstock.state import decode_key, encode_key, partition_of

Point = namedtuple("Point", "x y")


class Color(str, Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.integers(-5, 5).map(float),
    st.decimals(allow_nan=False, places=3),
    st.decimals(allow_nan=False),
)
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.text(st.characters(exclude_categories=[])),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([timezone.utc, timezone(timedelta(hours=5))])),
    st.uuids(),
)
KEYS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(KEYS, KEYS)
def test_keys_are_one_if_and_only_if_python_says_so(left: Any, right: Any) -> None:
    assert (encode_key(left) == encode_key(right)) == (left == right)


@given(NUMBERS, NUMBERS)
def test_numbers_are_one_across_their_types(left: Any, right: Any) -> None:
    assert (encode_key(left) == encode_key(right)) == (left == right)


@given(KEYS)
def test_the_bytes_tell_the_key(key: Any) -> None:
    assert decode_key(encode_key(key)) == key
    assert encode_key(decode_key(encode_key(key))) == encode_key(key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0, -0.0),
        (0.5, Decimal("0.50")),
        (10**400, Decimal(10) ** 400),
        (float("inf"), Decimal("Infinity")),
        ("red", Color.RED),
        (3, Level.HIGH),
        ((1, 2), Point(1, 2)),
        (5, np.int64(5)),
        (0.25, np.float64(0.25)),
        (
            datetime(2026, 1, 1, 12, tzinfo=timezone.utc),
            datetime(2026, 1, 1, 17, tzinfo=timezone(timedelta(hours=5))),
        ),
    ],
)
def test_equal_keys_are_one(one: Any, other: Any) -> None:
    assert one == other
    assert encode_key(one) == encode_key(other)
    assert partition_of(one) == partition_of(other)


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        ("a", b"sa"),
        (-255, b"i-ff"),
        (1.5, b"f?\xf8\0\0\0\0\0\0"),
        (b"\0", b"b\0"),
        (None, b"N"),
        (("a", 1), b"t\0\0\0\2sa\0\0\0\2i1"),
        (date(2026, 1, 2), b"d2026-01-02"),
        (datetime(2026, 1, 2, 3), b"T2026-01-02T03:00:00"),  # noqa: DTZ001 (a key without a zone)
        (UUID(int=1), b"u" + b"\0" * 15 + b"\1"),
        (Decimal("0.10"), b"D1e-1"),
        (Decimal("-1.2"), b"D-12e-1"),
    ],
)
def test_the_bytes_never_change(key: Any, encoded: bytes) -> None:
    assert encode_key(key) == encoded
    assert decode_key(encoded) == key


def test_partitions_never_change() -> None:
    assert [partition_of(key) % 8 for key in ("a", "b", 1, (1, "a"), None)] == [4, 6, 3, 5, 2]


@pytest.mark.parametrize(
    "key",
    [
        float("nan"),
        Decimal("NaN"),
        (1, float("nan")),
        [1],
        {"a": 1},
        frozenset([1]),
        object(),
        Fraction(1, 3),
        pd.Timestamp("2026-01-01"),
        pd.NaT,
        1j,
    ],
    ids=lambda key: f"{type(key).__name__} {key}".partition(" at ")[0],
)
def test_what_has_no_lasting_identity_is_refused(key: Any) -> None:
    with pytest.raises(StateKeyError, match=r"cannot have state.*Hint: map keys to str"):
        encode_key(key)

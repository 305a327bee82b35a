"""The offset log's entries: what they may hold, how they are written, and that they come back."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint import OffsetLog, OffsetSeq
from penstock.errors import ConfigError, LogFormatError, LogGapError, RecoveryMismatchError
from penstock.storage import Storage, open_storage

from .conftest import offsets_of

MEMORY = open_storage(f"memory://{uuid.uuid4().hex}")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.integers(0, 2**63 - 1)
streams = st.dictionaries(texts, st.dictionaries(texts, st.integers(0), max_size=4), max_size=3)
entries = st.builds(
    OffsetSeq,
    batch_timestamp_ms=times,
    watermark_ms=times,
    conf=st.dictionaries(texts, texts, max_size=6),
    sources=st.lists(st.none() | streams.map(json.dumps), min_size=1, max_size=4).map(tuple),
)


@given(entries)
def test_entries_come_back_as_they_were(entry: OffsetSeq) -> None:
    log = OffsetLog(MEMORY, uuid.uuid4().hex)
    log.add(0, entry)
    assert log.get(0) == entry
    assert list(log.get(0).conf) == list(entry.conf)  # type: ignore[union-attr]


def test_bytes_of_an_entry(storage: Storage) -> None:
    entry = OffsetSeq(
        batch_timestamp_ms=7,
        watermark_ms=5,
        conf={"z": "a/b", "a": '"\\\n\x1f\x7fé\u2028😀'},
        sources=('{"raw_data":{"0":246189}}', None, "12"),
    )
    OffsetLog(storage).add(3, entry)
    expected = (
        'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"z":"a/b",'
        '"a":"\\"\\\\\\n\\u001F\x7fé\u2028😀"}}\n{"raw_data":{"0":246189}}\n-\n12'
    )
    assert storage.read("offsets/3") == expected.encode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_timestamp_ms": -1},
        {"batch_timestamp_ms": True},
        {"watermark_ms": 2**63},
        {"conf": {"a": 1}},
        {"conf": {"a": "\ud800"}},
        {"sources": ()},
        {"sources": ("-",)},
        {"sources": ("{\n}",)},
        {"sources": ('{"a":1,"a":2}',)},
        {"sources": ("NaN",)},
        {"sources": ('"\ud800"',)},
    ],
)
def test_what_would_not_come_back_is_refused_at_construction(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        OffsetSeq(**{"batch_timestamp_ms": 0, "sources": ("1",), **wrong})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}', "Incomplete log file"),
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}\n1\n', "another form"),
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}\n{"a":', "source 0"),
        ('v1\n{"batchTimestampMs":7,"batchWatermarkMs":0,"conf":{}}\n1', "does not hold just"),
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":"7","conf":{}}\n1', "not a time"),
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{"a":1}}\n1', "not text to text"),
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":07,"conf":{}}\n1', "not JSON"),
        ('v2\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}\n0:1', "Please upgrade."),
    ],
)
def test_a_damaged_entry_is_refused(storage: Storage, content: str, message: str) -> None:
    storage.create("offsets/4", content.encode())
    with pytest.raises(LogFormatError, match=message):
        OffsetLog(storage).get(4)


def test_a_program_with_other_sources_cannot_go_on(storage: Storage) -> None:
    log = OffsetLog(storage)
    log.add(0, offsets_of(0, sources=2))
    log.check_sources(0, log.require(0), 2)
    with pytest.raises(RecoveryMismatchError, match=r"There are \[2\] sources .* now .* \[3\]"):
        log.check_sources(0, log.require(0), 3)
    with pytest.raises(LogGapError, match="offsets/1"):
        log.require(1)

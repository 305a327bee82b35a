"""Line splitting against a naive splitter, over any bytes in any chunks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import ConfigError, ReceiverError
from penstock.receivers.lines import LINES_SCHEMA, LineSplitter

# Mostly bytes that matter: line ends, ASCII, starts and ends of multi-byte characters, never-valid.
_BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\xc3\xa9", b"\xf0\x9f\x98\x80"]),
        st.sampled_from([b"\xc3", b"\xa9", b"\xe2\x82", b"\xff", b"\xed\xa0\x80", b"\x00"]),
        st.binary(max_size=8),
    ),
    max_size=40,
).map(b"".join)


def naive_lines(data: bytes) -> list[str]:
    """One line at a time, as the module's text defines it."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r").decode("utf-8", errors="replace") for line in lines]


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(borders)]


def split(splitter: LineSplitter, chunks: list[bytes], into: list[str] | None = None) -> list[str]:
    lines = [] if into is None else into
    for batches in [*(splitter.feed(chunk) for chunk in chunks), splitter.finish()]:
        for batch in batches:
            batch.validate(full=True)
            assert batch.schema == LINES_SCHEMA
            lines += batch.column("value").to_pylist()
    return lines


@given(data=_BYTES, cuts=st.lists(st.integers(min_value=0), max_size=8))
@example(data=b"\xc3\n\xa9\n", cuts=[])  # two halves of one character, on two lines
@example(data=b"a\r\r\nb\r\n\r\n", cuts=[2, 3])
@example(data=b"end\r", cuts=[1])
def test_equals_naive_splitting_however_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    assert split(LineSplitter(), chunks_of(data, cuts)) == naive_lines(data)


@given(
    data=_BYTES,
    cuts=st.lists(st.integers(min_value=0), max_size=8),
    limit=st.integers(min_value=1, max_value=12),
)
def test_the_limit_falls_on_the_same_line_however_the_bytes_are_cut(
    data: bytes, cuts: list[int], limit: int
) -> None:
    raw = data.split(b"\n")
    before = next((i for i, line in enumerate(raw) if len(line) > limit), None)
    splitter = LineSplitter(limit)
    if before is None:
        assert split(splitter, chunks_of(data, cuts)) == naive_lines(data)
        return
    got: list[str] = []
    with pytest.raises(ReceiverError, match=f"longer than {limit} bytes.*max_line_bytes"):
        split(splitter, chunks_of(data, cuts), got)
    assert got == naive_lines(b"".join(line + b"\n" for line in raw[:before]))


def test_the_stream_end_completes_a_line_once() -> None:
    splitter = LineSplitter()
    assert split(splitter, [b"a\nlast"]) == ["a", "last"]
    assert list(splitter.finish()) == []


@pytest.mark.parametrize("limit", [0, -1, 1 << 40])
def test_an_impossible_limit_fails_at_construction(limit: int) -> None:
    with pytest.raises(ConfigError, match="max_line_bytes"):
        LineSplitter(limit)

"""The log of what parts without names are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.unnamed_parts import Part, UnnamedParts
from penstock.errors import ConcurrentDriverError, LogFormatError
from penstock.storage import open_storage

PARTS = (
    Part("input", "tail-0", "ReceiverInputDStream", "ReceiverInputDStream", "1f"),
    Part("output", "foreachRDD-0", "foreachRDD", "foreachRDD(f) of tail-0", "2e"),
)


def names(location: Path) -> list[str]:
    return sorted(path.name for path in (location / "unnamed").glob("[0-9]*"))


def test_the_newest_entry_counts_and_older_ones_are_deleted(tmp_path: Path) -> None:
    log = UnnamedParts(open_storage(tmp_path))
    assert log.newest() == ()
    log.replace(())
    assert names(tmp_path) == []
    for count in range(1, 3):
        log.replace(PARTS[:count])
        log.replace(PARTS[:count])
        assert UnnamedParts(open_storage(tmp_path)).newest() == PARTS[:count]
    assert names(tmp_path) == ["0", "1"]
    log.replace(PARTS[1:])
    assert names(tmp_path) == ["1", "2"]


def test_the_format(tmp_path: Path) -> None:
    UnnamedParts(open_storage(tmp_path)).replace(PARTS[1:])
    assert (tmp_path / "unnamed/0").read_text() == (
        'v1\n["output","foreachRDD-0","foreachRDD","foreachRDD(f) of tail-0","2e"]'
    )


@pytest.mark.parametrize("line", ['["operator","a-0","b"]', "{}", "[", '["a","b","c","d",1]', "3"])
def test_what_is_not_a_description_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "unnamed").mkdir()
    (tmp_path / "unnamed/0").write_text(f"v1\n{line}")
    with pytest.raises(LogFormatError, match="unnamed/0"):
        UnnamedParts(open_storage(tmp_path)).newest()


def test_two_drivers_that_start_at_once(tmp_path: Path) -> None:
    first, second = (UnnamedParts(open_storage(tmp_path)) for _ in range(2))
    first.replace(PARTS)
    assert second.add(0, PARTS) is False
    with pytest.raises(ConcurrentDriverError, match="unnamed/0"):
        second.add(0, PARTS[1:])

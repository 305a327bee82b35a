"""Where a consumer's blocks are kept from, by the ends of its batches."""

from __future__ import annotations

import pytest

from penstock.journal.retention.recent_ends import RecentEnds


@pytest.mark.parametrize("keep", [1, 3, 10, 100])
def test_the_last_batches_can_be_read_again_and_not_many_more(keep: int) -> None:
    ends = RecentEnds.begin_at({"r0-00000000": 0})
    for number in range(1, 500):
        ends = ends.after({"r0-00000000": number * 10}, keep)
        oldest = ends.oldest["r0-00000000"] // 10
        assert number - keep - max(1, keep // 10) <= oldest <= max(0, number - keep)
        assert len(ends.marks) <= 13


def test_what_was_taken_back_is_forgotten() -> None:
    ends = RecentEnds.begin_at({"r0-00000000": 0})
    for number in range(1, 6):
        ends = ends.after({"r0-00000000": number}, 10)
    back = ends.back_to({"r0-00000000": 3})
    assert [end["r0-00000000"] for _, end in back.marks] == [0, 1, 2, 3]
    assert back.count == 5


def test_behind_all_of_them_nothing_older_is_promised() -> None:
    ends = RecentEnds.begin_at({"r0-00000000": 7}).back_to({"r0-00000000": 3})
    assert ends.oldest == {"r0-00000000": 3}

"""The text in files of a checkpoint path."""

from __future__ import annotations

import pytest

from penstock.batched.layout import (
    check_topics,
    checkpoint_number,
    dump_checkpoint,
    dump_log,
    parse_checkpoint,
    parse_log,
)
from penstock.errors import ConfigError


def test_offsets_in_files_are_the_last_ones_included() -> None:
    assert dump_checkpoint({10: 4, 2: 6}) == b'{"2": 5, "10": 3}'
    assert parse_checkpoint(b'{"2": 5, "10": 3}') == {2: 6, 10: 4}
    assert (dump_log(6), parse_log(b"5"), parse_log(b"5\n")) == (b"5", 6, 6)


def test_a_partition_of_which_nothing_is_done() -> None:
    assert dump_checkpoint({0: 0, 1: 1}) == b'{"0": -1, "1": 0}'
    assert parse_checkpoint(b'{"0": -1, "1": 0}') == {0: 0, 1: 1}
    assert parse_checkpoint(b"{}") == {}


def test_the_form_of_the_proposal_is_read() -> None:
    assert parse_checkpoint(b"{0: 5, 1: 4, 2: 3}") == {0: 6, 1: 5, 2: 4}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" \n",
        b'{"0": 5',
        b'{"0": 5}}',
        b"[5]",
        b"5",
        b'{"a": 5}',
        b'{"00": 5}',
        b'{"0": "5"}',
        b'{"0": true}',
        b'{"0": 5.0}',
        b'{"0": -2}',
        b'{"0": 9223372036854775807}',
        b'{"0": 5, "0": 6}',
        b'{"version": 2, "offsets": {"0": 5}}',
        b"\xff",
        b"\0" * 16,
        b"[" * 100_000,
    ],
)
def test_what_is_no_checkpoint(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_checkpoint(text)


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"5 6"])
def test_what_is_no_log(text: bytes) -> None:
    with pytest.raises(ValueError, match="is not an offset"):
        parse_log(text)


def test_every_torn_checkpoint_is_noticed() -> None:
    whole = dump_checkpoint({0: 123, 1: 45})
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r".+"):
            parse_checkpoint(whole[:size])


def test_names_of_checkpoints() -> None:
    names = ["0.txt", "1.txt", "100.txt", "01.txt", "1.txt.bak", "-1.txt", "1", "a.txt", "1.TXT"]
    assert [checkpoint_number(name) for name in names] == [0, 1, 100, *[None] * 6]


def test_the_number_after_a_number_is_one_as_well() -> None:
    number = 10**19 - 1  # a checkpoint that no start saw would be passed over for ever
    assert checkpoint_number(f"{number}.txt") == number
    assert checkpoint_number(f"{number + 1}.txt") == number + 1


@pytest.mark.parametrize("topic", ["dirty_bit", "write-ahead-logs", "driver.lock"])
def test_topics_in_the_place_of_other_files_are_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match=f"'{topic}' cannot have checkpoints"):
        check_topics(["clicks", topic])

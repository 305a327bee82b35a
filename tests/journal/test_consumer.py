"""Registered consumers: where they begin, what they hold back, whose a name is."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError, LogFormatError, StorageError
from penstock.journal import (
    JournalStream,
    commit_consumer,
    consumers,
    remove_consumer,
    retire,
)
from penstock.journal.layout import WriterId, consumer_path
from penstock.journal.retention.registration import Consumer, StartingOffsets, register_consumer
from tests.journal.helpers import memory_stream, read_after, write_blocks
from tests.storage.faulty_storage import FaultyStorage

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # at 0, 2, 3, 6


def rest(stream: JournalStream, consumer: Consumer) -> list[str]:
    """Return all that a consumer reads from where it began."""
    return read_after(stream, consumer.begin)[0]


def retired_stream() -> tuple[JournalStream, WriterId]:
    """A stream whose first writer is retired whole, and its second up to offset 3."""
    stream = memory_stream()
    write_blocks(stream, [["x"]])
    writer = write_blocks(stream, BLOCKS, close=False)
    commit_consumer(stream, "before", {str(writer): 3})
    retire(stream)
    return stream, writer


@pytest.mark.parametrize(
    ("starting", "read"), [("earliest", list("abcdefg")), ("latest", list[str]())]
)
def test_where_a_new_consumer_begins(starting: StartingOffsets, read: list[str]) -> None:
    stream = memory_stream()
    write_blocks(stream, BLOCKS)
    consumer = register_consumer(stream, "job", "me", starting=starting)
    assert rest(stream, consumer) == read
    write_blocks(stream, [["h"]])
    write_blocks(stream, [["i"]], receiver="other")
    assert sorted(rest(stream, consumer)) == [*read, "h", "i"]


def test_earliest_is_the_oldest_block_held() -> None:
    stream, writer = retired_stream()
    consumer = register_consumer(stream, "job", "me")
    assert consumer.begin == {str(writer): 3}  # the finished writer is left out
    assert rest(stream, consumer) == list("defg")


def test_a_registered_consumer_holds_back_what_it_has_not_read() -> None:
    stream, writer = retired_stream()
    register_consumer(stream, "job", "me")
    commit_consumer(stream, "before", {str(writer): 7})
    assert retire(stream) == 0
    assert consumers(stream)["job"] == {str(writer): 3}


def test_where_it_began_stays() -> None:
    stream, writer = retired_stream()
    first = register_consumer(stream, "job", "me")
    first.commit({str(writer): 6})
    remove_consumer(stream, "before")
    retire(stream)
    again = register_consumer(stream, "job", "me", begun=True)
    assert again == first
    assert consumers(stream)["job"] == {str(writer): 6}


def test_latest_is_latest_at_its_first_registration() -> None:
    stream = memory_stream()
    write_blocks(stream, BLOCKS)
    register_consumer(stream, "job", "me", starting="latest")
    write_blocks(stream, [["h"]])
    assert rest(stream, register_consumer(stream, "job", "me", starting="latest")) == ["h"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_name_is_its_owners(begun: bool) -> None:
    stream = memory_stream()
    register_consumer(stream, "job", "me")
    commit_consumer(stream, "plain", {})
    for name in ("job", "plain"):
        with pytest.raises(ConfigError, match="consumers rm") as caught:
            register_consumer(stream, name, "you", begun=begun)
        assert name in str(caught.value)
    remove_consumer(stream, "job")
    register_consumer(stream, "job", "you", begun=begun)


def test_what_belongs_to_a_place_is_taken_over() -> None:
    stream, writer = retired_stream()
    emptied = register_consumer(stream, "streaming", "a location that was emptied")
    emptied.commit({str(writer): 7})
    taken = register_consumer(stream, "streaming", "its successor", take_over=True)
    assert taken.begin == {str(writer): 3}


@pytest.mark.parametrize("offsets", [None, {"r0-00000000": 2}])
def test_one_that_had_begun_is_not_sent_elsewhere(offsets: dict[str, int] | None) -> None:
    """Its file was removed."""
    stream = memory_stream()
    write_blocks(stream, BLOCKS)
    if offsets is not None:
        commit_consumer(stream, "streaming", offsets)
    consumer = register_consumer(stream, "streaming", "me", begun=True, take_over=True)
    assert consumer.begin == {}
    assert consumers(stream)["streaming"] == (offsets or {})


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_registration_cut_off_at_each_step(
    nth: int, after: bool, starting: StartingOffsets
) -> None:
    """From its first step on it holds blocks back; said again, it goes on to one place."""
    inner, writer = retired_stream()
    faulty = FaultyStorage(inner.storage)
    stream = JournalStream(faulty, inner.name, inner.format)
    faulty.fail("create", path="*/consumers/*", nth=nth, after=after)
    with pytest.raises(StorageError):
        register_consumer(stream, "job", "me", starting=starting)
    commit_consumer(inner, "before", {str(writer): 6})
    registered = nth == 2 or after
    assert ("job" in consumers(inner)) is registered
    begun_at_the_end = starting == "latest" and nth == 2 and after
    assert retire(inner) == (0 if registered and not begun_at_the_end else 1)
    consumer = register_consumer(stream, "job", "me", starting=starting)
    begin = 7 if starting == "latest" else 3 if registered else 6
    assert consumer.begin == {str(writer): begin}
    assert rest(inner, consumer) == list("abcdefg")[begin:]


def test_a_damaged_registration_is_refused() -> None:
    stream = memory_stream()
    stream.storage.create(consumer_path(stream.name, "job"), b'{"offsets": 3}')
    with pytest.raises(LogFormatError, match="file cannot be read"):
        register_consumer(stream, "job", "me")

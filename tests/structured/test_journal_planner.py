"""The planner of format("penstock") in Spark's order of calls, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConcurrentDriverError, ConfigError
from penstock.journal import JournalStream, consumers, remove_consumer
from penstock.journal.record_reader import slice_records
from penstock.journal.retention import registration
from penstock.journal.retention.consumer_files import read_consumer, read_consumers
from penstock.journal.retention.registration import register_consumer
from penstock.journal.slices import BlockSlice
from penstock.model import Offsets
from penstock.structured.admission import Admission
from penstock.structured.journal import planner as planner_module
from penstock.structured.journal.options import JournalOptions
from penstock.structured.journal.planner import JournalPlanner, check_owner
from penstock.structured.session import QueryFacts, Session
from tests.journal.helpers import memory_stream, write_blocks


def planner_of(stream: JournalStream, *, keep: int = 100, **options: str) -> JournalPlanner:
    given = {"journal": stream.storage.url, "stream": stream.name, "consumer": "q", **options}
    return JournalPlanner(stream, "q", JournalOptions.parse(given), Session("", 2, keep))


def planner_in(
    folder: Path,
    stream: JournalStream,
    query_id: str,
    *,
    location: str = "/data/checkpoint",
    keep: int = 100,
    consumer: str = "q",
    **options: str,
) -> JournalPlanner:
    """Return the planner of a query that the driver's process has told of."""
    given = {"journal": stream.storage.url, "stream": stream.name, "consumer": consumer, **options}
    facts = QueryFacts(query_id, location, keep)
    session = Session(str(folder), 2, 100)
    return JournalPlanner(stream, consumer, JournalOptions.parse(given), session, facts)


def records(stream: JournalStream, planner: JournalPlanner, start: Offsets, end: Offsets) -> Any:
    tasks: Sequence[Sequence[BlockSlice]] = [p.slices for p in planner.partitions(start, end)]
    return [record for task in tasks for record in slice_records(stream, list(task))]


def test_the_beginning_stays_the_same_until_a_batch_is_committed() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, [["a"]], close=False)
    assert planner_of(stream, startingOffsets="latest").begin() == {str(writer): 1}
    write_blocks(stream, [["b"]], receiver="r1")
    assert planner_of(stream, startingOffsets="earliest").begin() == {str(writer): 1}


def test_a_query_that_begins_anew_with_a_used_consumer_is_refused() -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    planner = planner_of(stream)
    end = planner.latest(planner.begin())
    planner.commit(end)
    with pytest.raises(ConfigError, match="begins anew") as refused:
        planner_of(stream).begin()
    assert "penstock journal consumers rm" in str(refused.value)
    remove_consumer(stream, "q")
    assert planner_of(stream).begin() == {"r0-00000000": 0}


def test_a_later_reader_fences_the_earlier_one_and_nothing_is_lost() -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"], ["b"]])
    first = planner_of(stream)
    begin = first.begin()
    end = first.latest(begin)
    second = planner_of(stream)
    assert second.begin() == begin
    with pytest.raises(ConcurrentDriverError, match="another query reads as consumer"):
        first.commit(end)
    with pytest.raises(ConcurrentDriverError):
        first.latest(begin)
    assert records(stream, second, begin, second.latest(second.begin())) == ["a", "b"]


def test_an_earlier_reader_that_slept_before_it_wrote_ends_and_the_later_one_goes_on() -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"], ["b"]])
    early, late = planner_of(stream), planner_of(stream)
    begin = early.begin()
    end = early.latest(begin)
    write = early._write

    def sleeps(committed: Offsets) -> None:
        late.latest(end)
        write(committed)

    early._write = sleeps  # type: ignore[method-assign]
    with pytest.raises(ConcurrentDriverError, match="another query reads as consumer"):
        early.commit({"r0-00000000": 1})
    assert late.latest(end) == end
    with pytest.raises(ConcurrentDriverError, match="another query reads as consumer"):
        early.latest(end)
    again = planner_of(stream)
    assert again.latest(end) == end
    assert consumers(stream)["q"] == end


@pytest.mark.parametrize("asleep", ["before its write", "after its write"])
def test_a_reader_that_wakes_deletes_nothing_of_a_checkpoint_that_was_taken_back(
    monkeypatch: pytest.MonkeyPatch, asleep: str
) -> None:
    """It sleeps in its commit, while the query starts again where the kept batches begin."""
    stream = memory_stream()
    writer = str(write_blocks(stream, [[str(n)] for n in range(40)]))
    early, late = planner_of(stream, keep=10), planner_of(stream, keep=10)
    at = early.begin()
    for end in range(1, 21):
        early.latest(at)
        at = {writer: end}
        early.commit(at)
    entry = read_consumer(stream, "q")
    assert entry is not None
    oldest = dict(entry.retained or {})

    def start_again() -> None:
        monkeypatch.undo()
        late.latest(oldest)

    def before(call: Any) -> Any:
        def sleeps(*args: Any, **options: Any) -> Any:
            start_again()
            return call(*args, **options)

        return sleeps

    def after(call: Any) -> Any:
        def sleeps(*args: Any, **options: Any) -> None:
            call(*args, **options)
            start_again()

        return sleeps

    sleeps = before if asleep == "before its write" else after
    monkeypatch.setattr(registration, "write_consumer", sleeps(registration.write_consumer))
    with pytest.raises(ConcurrentDriverError, match="another query reads as consumer"):
        early.commit({writer: 21})
    end = late.latest(oldest)
    assert records(stream, late, oldest, end) == [str(n) for n in range(oldest[writer], 40)]
    late.commit({writer: oldest[writer] + 1})
    names = stream.storage.names("s/consumers")
    assert len(names) == 2  # a claim is left for the last reader alone
    remove_consumer(stream, "q")
    assert stream.storage.names("s/consumers") == []


def test_a_consumer_that_was_removed_ends_its_query(caplog: pytest.LogCaptureFixture) -> None:
    """Its stream may have been created anew, with other records at the same offsets."""
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    running = planner_of(stream)
    end = running.latest(running.begin())
    remove_consumer(stream, "q")
    for plan in (running.latest, running.commit):
        with pytest.raises(ConfigError, match="was removed while this query runs"):
            plan(end)
    assert not caplog.messages
    later = planner_of(stream)
    assert later.latest(end) == end
    (told,) = caplog.messages
    assert "If the stream was created anew" in told
    with pytest.raises(ConcurrentDriverError):
        running.latest(end)
    assert later.latest(end) == end
    assert planner_of(stream).latest(end) == end
    assert caplog.messages == [told]


def test_a_query_that_is_refused_leaves_the_running_one_alone() -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    running = planner_of(stream)
    end = running.latest(running.begin())
    running.commit(end)
    mistaken = planner_of(stream)
    mistaken.snapshot()  # Spark's order with Trigger.AvailableNow
    with pytest.raises(ConfigError, match="begins anew"):
        mistaken.begin()
    write_blocks(stream, [["b"]], receiver="r1")
    assert records(stream, running, end, running.latest(end)) == ["b"]
    running.commit(running.latest(end))


def test_a_copy_of_a_querys_checkpoint_is_refused_and_the_query_runs_on(tmp_path: Path) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    running = planner_in(tmp_path, stream, "one")
    end = running.latest(running.begin())
    running.commit(end)
    copy = planner_in(tmp_path, stream, "two", location="/data/copy")
    for plan in (copy.latest, copy.commit, lambda at: copy.partitions(at, at)):
        with pytest.raises(ConfigError, match="another query, with checkpoint /data/checkpoint:"):
            plan(end)
    write_blocks(stream, [["b"]], receiver="r1")
    last = running.latest(end)
    assert records(stream, running, end, last) == ["b"]
    again = planner_in(tmp_path, stream, "one")
    assert again.latest(last) == last
    own = planner_in(tmp_path, stream, "two", consumer="copy")
    assert records(stream, own, end, own.latest(end)) == ["b"]


def test_a_consumer_that_has_committed_nothing_goes_to_the_query_that_begins(
    tmp_path: Path,
) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    begin = planner_in(tmp_path, stream, "one").begin()
    assert planner_in(tmp_path, stream, "two", startingOffsets="latest").begin() == begin


def test_a_query_that_begins_late_takes_no_consumer_that_has_committed(tmp_path: Path) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    late = planner_in(tmp_path, stream, "two")
    running = planner_in(tmp_path, stream, "one")
    end = running.latest(running.begin())
    running.commit(end)
    with pytest.raises(ConfigError, match="begins anew"):
        late.begin()
    assert running.latest(end) == end


def test_each_query_keeps_the_batches_that_it_was_started_with(tmp_path: Path) -> None:
    stream = memory_stream()
    facts = {"one": 100, "two": 1}
    planners = {id: planner_in(tmp_path, stream, id, keep=facts[id], consumer=id) for id in facts}
    for name, planner in planners.items():
        at = planner.begin()
        for number in range(4):
            write_blocks(stream, [[str(number)]], receiver=name)
            at = planner.latest(at)
            planner.commit(at)
    kept = {name: entry.retained for name, entry in read_consumers(stream).items()}
    assert kept["one"] == {}
    assert kept["two"] != {}


def test_a_second_new_query_that_is_refused_leaves_the_first_ones_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    first: list[JournalPlanner] = []

    def nothing_yet(*_: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(planner_module, "check_owner", check_owner)
            first.append(planner_of(stream))

    for starting in ('{"s": {"r0-00000000": 9}}', "latest"):
        with monkeypatch.context() as patch:
            patch.setattr(planner_module, "check_owner", nothing_yet)
            if starting == "latest":  # what the first one has settled holds
                assert planner_of(stream, startingOffsets=starting).begin() == first[0].begin()
            else:
                planner_of(stream, startingOffsets=starting)
        assert read_consumer(stream, "q") is not None


def test_a_query_that_has_read_all_is_behind_by_nothing() -> None:
    stream = memory_stream()
    planner = planner_of(stream)
    begin = planner.begin()
    write_blocks(stream, [["a"]])
    end = planner.latest(begin)
    assert planner.latest(end) == end  # Spark asks again when the batch is done
    assert consumers(stream)["q"] == end
    entry = read_consumer(stream, "q")
    assert entry is not None
    assert entry.retained == begin


def test_a_restart_leaves_the_time_of_the_last_commit(tmp_path: Path) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"]])
    planner = planner_in(tmp_path, stream, "one")
    end = planner.latest(planner.begin())
    planner.commit(end)
    planner_in(tmp_path, stream, "one").latest(end)
    entry = read_consumer(stream, "q")
    assert entry is not None
    assert entry.program is not None
    assert entry.program.committed_ms is not None
    assert entry.program.location == "/data/checkpoint"


def test_a_checkpoint_that_was_taken_back_reads_the_same_records_again() -> None:
    stream = memory_stream()
    ends: list[Offsets] = []
    planner = planner_of(stream, keep=5)
    ends.append(planner.begin())
    for number in range(20):
        write_blocks(stream, [[str(number)]], receiver=f"r{number % 2}")
        ends.append(planner.latest(ends[-1]))
        planner.commit(ends[-1])
    for back in range(15, 20):
        again = planner_of(stream, keep=5)
        found = records(stream, again, ends[back], again.latest(ends[back]))
        assert sorted(found) == [str(n) for n in range(back, 20)]
        assert consumers(stream)["q"] == ends[back]
        for end in ends[back + 1 :]:
            again.commit(end)


def test_a_query_that_ends_by_itself_reads_all_again_after_its_checkpoint_was_taken_back() -> None:
    stream = memory_stream()
    first = write_blocks(stream, [["a"], ["b"]])
    second = write_blocks(stream, [["c"]])
    planner = planner_of(stream)
    for end in ({str(first): 1}, {str(first): 2, str(second): 0}, {str(second): 1}):
        planner.commit(end)
    again = planner_of(stream)
    admission = Admission()
    admission.end_at(again.snapshot())
    start = {str(first): 1}
    end = admission.end_of_batch(start, again.latest(start), None, again.lane)
    assert records(stream, again, start, end) == ["b", "c"]


def test_a_query_that_ends_by_itself_takes_a_record_at_any_rate() -> None:
    admission = Admission()
    admission.end_at({"r0-00000000": 3})
    at: Offsets = {"r0-00000000": 0}
    for taken in (1, 2, 3, 3):
        at = admission.end_of_batch(at, {"r0-00000000": 3}, 0.3, lambda writer: (writer, 0))
        assert at == {"r0-00000000": taken}


def test_commits_may_come_late_and_twice() -> None:
    stream = memory_stream()
    planner = planner_of(stream)
    begin = planner.begin()
    write_blocks(stream, [["a"]])
    end = planner.latest(begin)
    again = planner_of(stream)
    assert again.latest(end) == end
    for _ in range(3):
        again.commit(end)
    entry = read_consumer(stream, "q")
    assert entry is not None
    assert entry.recent is not None
    assert (entry.offsets, entry.recent.count, entry.retained) == (end, 1, begin)


def test_old_blocks_are_retired_behind_the_batches_that_are_retained() -> None:
    stream = memory_stream()
    planner = planner_of(stream, keep=3)
    at = planner.begin()
    for number in range(10):
        write_blocks(stream, [[str(number)]], receiver="r0")
        at = planner.latest(at)
        planner.commit(at)
    held = [w for w in stream.writers() if len(stream.blocks(w)) > 1]
    assert [w.epoch for w in held] == [7, 8, 9]


@pytest.mark.parametrize(
    ("starting", "why"),
    [
        ({"s": {"r0-00000000": 9}}, "the stream ends before"),
        ({"s": {"r0-00000000": 1, "r1-00000000": 0}}, "the stream ends before, in r1-00000000"),
        ({"s": {"r0-00000000": 0}}, "records from there on are gone"),
    ],
)
def test_offsets_that_the_journal_does_not_hold_are_refused(starting: Any, why: str) -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"], ["b"], ["c"]], close=False)
    stream.storage.delete("s/r0-00000000/00000000000000000000.parquet")
    with pytest.raises(ConfigError, match=why):
        planner_of(stream, startingOffsets=json.dumps(starting))
    assert read_consumer(stream, "q") is None


def test_it_begins_at_given_offsets() -> None:
    stream = memory_stream()
    write_blocks(stream, [["a"], ["b"], ["c"]])
    given = {"r0-00000000": 2}
    planner = planner_of(stream, startingOffsets=json.dumps({"s": given}))
    assert planner.begin() == given
    assert records(stream, planner, given, planner.latest(given)) == ["c"]


def test_the_name_of_another_program_is_refused() -> None:
    stream = memory_stream()
    register_consumer(stream, "q", "a-dstream-program")
    with pytest.raises(ConfigError, match="belongs to another program"):
        planner_of(stream)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"strem": "s"}, "did you mean 'stream'"),
        ({"maxoffsetspertriger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"backpressure.enable": "true"}, "did you mean 'backpressure.enabled'"),
        ({"backpressure.pid.minRate": "-1"}, "backpressure.pid.minRate is '-1'"),
        ({"path": "x"}, 'given by options: .option("journal", "/data/journal").option("stream"'),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"startingOffsets": "middle"}, "give earliest, latest, or offsets"),
        ({"startingOffsets": '{"other": {"r0-00000000": 1}}'}, "with stream 's' and no other"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "are both given"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since the epoch"),
        ({"startingTimestamp": f"{2**63}"}, "milliseconds since the epoch"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        JournalOptions.parse({"journal": "/j", "stream": "s", **given})
    assert says in str(refused.value)


def test_missing_options_are_named() -> None:
    with pytest.raises(ConfigError, match="needs option 'journal'"):
        JournalOptions.parse({"stream": "s"})

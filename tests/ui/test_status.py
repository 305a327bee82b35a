"""What is read of a location, and how it is judged."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.batch_records import JobRecord
from penstock.errors import ConfigError, StorageError
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.losses.loss_log import Loss, create_loss, loss_now, source_folder
from penstock.journal.retention.consumer_files import ConsumerEntry, Program, write_consumer
from penstock.metrics.catalog import LOST
from penstock.metrics.exporter import location_samples
from penstock.model import OffsetRange
from penstock.status import (
    LocationReader,
    LocationStatus,
    SharedStatus,
    Unreadable,
    health,
    read_location,
)
from penstock.status import shared as shared_module
from penstock.status.model import (
    MOST_LOSSES,
    BatchStatus,
    ConsumerStatus,
    InputStatus,
    Process,
    StreamStatus,
)
from penstock.status.streams import Published, oldest_untaken
from penstock.storage import open_storage
from tests.journal.helpers import write_blocks
from tests.metrics.statuses import stream_status
from tests.ui.world import Batches, now_ms, program, receiver, stream_of
from tests.waiting import WAIT_S, eventually

NOW = 1_800_000_000_000
HOST = Process("h", 1)
EMPTY = LocationStatus(
    location="file:///p",
    name="p",
    kind="program",
    read_ms=NOW,
    process=HOST,
    is_running=True,
    spark_ui=None,
    batch_interval_ms=1000,
    batches=(),
    earlier=0,
    committed=-1,
    inputs=(),
    streams=(),
    losses={},
    next=None,
)
DONE = BatchStatus(
    batch_id=7,
    time_ms=NOW - 2000,
    state="committed",
    is_rerun=False,
    records=10,
    scheduling_delay_ms=3,
    processing_ms=200,
    total_delay_ms=203,
    plan_ms=2,
    commit_ms=1,
    ended_ms=NOW - 1000,
)


def with_batches(*batches: BatchStatus, **facts: object) -> LocationStatus:
    return replace(EMPTY, batches=batches, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "level", "text"),
    [
        (EMPTY, "ok", ""),
        (with_batches(DONE), "ok", ""),
        (with_batches(DONE, is_running=False), "stopped", "does not run"),
        (with_batches(DONE, is_running=None), "ok", ""),
        (with_batches(replace(DONE, scheduling_delay_ms=900)), "ok", ""),
        (with_batches(replace(DONE, scheduling_delay_ms=9000)), "warning", "9 s late"),
        (with_batches(replace(DONE, scheduling_delay_ms=90_000)), "error", "90 s late"),
        (with_batches(replace(DONE, processing_ms=1500)), "warning", "batches take 1.5 s"),
        (with_batches(replace(DONE, ended_ms=NOW - 61_000)), "error", "no batch was committed"),
        (with_batches(replace(DONE, state="failed", error="E")), "error", "batch 7 failed: E"),
        (
            with_batches(replace(DONE, state="running", time_ms=NOW - 300_000)),
            "error",
            "batch 7 is not done after 5 min",
        ),
        (
            replace(EMPTY, inputs=(InputStatus("i", None, None, None, True, None),)),
            "warning",
            "input i is paused",
        ),
        (
            replace(EMPTY, inputs=(InputStatus("i", 9, 31_000, None, False, None),)),
            "warning",
            "input i has 9 records waiting",
        ),
        (replace(EMPTY, problems=("torn",)), "error", "torn"),
    ],
)
def test_one_colour_and_why(status: LocationStatus, level: str, text: str) -> None:
    found = health(status)
    assert found.level == level
    assert text in " ".join(reason.text for reason in found.reasons)


SLOW = replace(
    DONE,
    processing_ms=1500,
    jobs=(JobRecord("print at a.py:1", 100), JobRecord("w at b.py:2", 1300)),
)


def test_a_slow_program_names_its_slowest_output() -> None:
    (found,) = health(with_batches(*[SLOW] * 7)).reasons
    assert found.text == (
        "batches take 1.5 s (median of the last 5), and the interval is 1 s; most of it w at b.py:2"
    )
    alike = replace(SLOW, jobs=(JobRecord("a", 740), JobRecord("b", 740)))
    (found,) = health(with_batches(alike)).reasons
    assert found.text.endswith("the interval is 1 s")


def test_a_batch_leads_to_its_own_page() -> None:
    late, stuck = health(
        with_batches(
            replace(DONE, scheduling_delay_ms=90_000),
            replace(DONE, batch_id=8, state="running", time_ms=NOW - 90_000),
        )
    ).reasons
    assert [(each.page, each.place) for each in (late, stuck)] == [
        ("batches", "7"),
        ("batches", "8"),
    ]


def test_losses_and_dead_consumers_say_since_when() -> None:
    when = datetime.fromtimestamp(NOW / 1000 - 240, timezone.utc).isoformat()
    lost = Loss(OffsetRange("r0-00000000", 0, 9), "why", "me", "h", when)
    dead = ConsumerStatus("c", {}, 12, 7_200_000, NOW - 7_200_000, "file:///c", HOST)
    reasons = health(replace(EMPTY, losses={"s": (lost,)}, streams=(stream_with(dead),))).reasons
    assert {each.text for each in reasons} == {
        "consumer c of s seems dead: 12 records behind, its last commit 2 h ago; the journal "
        "keeps them for it",
        "9 records of s were lost, the last 4 min ago: why",
    }
    assert {each.place for each in reasons} == {"s"}
    idle = replace(dead, lag_ms=400_000)  # records came only now
    (reason,) = health(replace(EMPTY, streams=(stream_with(idle),))).reasons
    assert reason.level == "warning"


def test_each_inputs_losses_are_told_apart() -> None:
    when = datetime.fromtimestamp(NOW / 1000 - 240, timezone.utc).isoformat()
    loss = Loss(OffsetRange("0", 0, 9), "why", "me", "h", when)
    losses = {"a": (loss, loss), "b": (loss,)}
    found = [each.text for each in health(replace(EMPTY, losses=losses)).reasons]
    assert found == [
        "18 records of a were lost, the last 4 min ago: why",
        "9 records of b were lost, the last 4 min ago: why",
    ]


def test_all_losses_of_an_input_count_also_those_that_are_not_shown(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(1))
    storage = open_storage(tmp_path / "p").without_sync()
    for number in range(MOST_LOSSES + 5):
        lost = OffsetRange("0", 10 * number, 10 * number + 2)
        create_loss(storage, source_folder("topic"), loss_now(lost, "gone"))
    status = read_location(str(tmp_path / "p"))
    assert len(status.losses["topic"]) == MOST_LOSSES
    counted = {
        labels[1]: v for metric, labels, v in location_samples("p", status) if metric is LOST
    }
    assert counted["topic"] == 2 * (MOST_LOSSES + 5)


def test_an_interval_of_too_many_digits_hides_nothing(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(2))
    newest = tmp_path / "p" / "offsets" / "1"
    setting = '"spark.penstock.batchIntervalMs":"'
    assert setting in newest.read_text()
    newest.write_text(newest.read_text().replace(setting, setting + "9" * 5000))
    status = read_location(str(tmp_path / "p"))
    assert (status.batch_interval_ms, len(status.batches)) == (None, 2)


def test_locations_of_one_folders_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / program / "checkpoint" for program in "abc"]
    shared = SharedStatus([*map(str, paths), f"{paths[0]}/"])
    assert [each.name for each in shared.all()] == [
        "checkpoint",
        "b/checkpoint",
        "c/checkpoint",
        "a/checkpoint",
    ]


@pytest.mark.parametrize(
    "url",
    ["s3://AKIA:hunter2@bucket/p", "s3://AKIA:x/hunter2@bucket/p", "s3://bucket/p?secret=hunter2"],
)
def test_secrets_in_a_url_are_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: LocationReader) -> LocationStatus:
        raise StorageError("gone", operation="read location")

    monkeypatch.setattr(LocationReader, "read", read)
    for found in SharedStatus([url, f"{url}/"]).all():  # the second needs a longer name
        assert isinstance(found, Unreadable)
        assert found.location.startswith("s3://bucket/p")
        assert "hunter2" not in str(found)


def test_what_comes_in_is_what_batches_take_where_there_is_no_journal() -> None:
    status = with_batches(replace(DONE, ended_ms=NOW - 30_000, records=600))
    assert status.rate_in == status.rate_out == 10
    assert replace(status, streams=(stream_status(),)).rate_in == 5


@pytest.mark.parametrize(("location", "shown"), [("file:///p", "file:///p"), ("s3://b", "s3a://b")])
def test_a_program_is_said_to_be_behind_once(location: str, shown: str) -> None:
    """Its input tells it; its own consumer would tell the same, with another number."""
    behind = InputStatus("s", 9, 400_000, None, False, None)
    own = ConsumerStatus("streaming", {}, 30, 400_000, NOW, location, HOST)
    other = replace(own, name="other", location="file:///o")
    streams = (stream_with(own, other),)
    status = replace(EMPTY, location=shown, inputs=(behind,), streams=streams)
    found = [each.text.split(", ")[0] for each in health(status).reasons]
    assert found == ["input s has 9 records waiting", "consumer other of s is 30 records behind"]


def stream_with(*consumers: ConsumerStatus) -> StreamStatus:
    found = replace(stream_status("s"), consumers=consumers, losses=(), receivers=(), writers=())
    return replace(found, max_bytes=None, problems=())


def test_what_goes_out_counts_where_batches_take_longer_than_the_minute() -> None:
    first = replace(DONE, ended_ms=NOW - 400_000, records=900)
    second = replace(DONE, ended_ms=NOW - 200_000, records=1000)
    running = replace(DONE, state="running", ended_ms=None, records=9)
    assert with_batches(first, second, running).rate_out == 1000 / 400
    assert with_batches(first, second).rate_out == 0
    recent = replace(DONE, ended_ms=NOW - 30_000, records=600)
    assert with_batches(first, replace(recent, batch_id=8), recent, running).rate_out == 20


def test_the_worst_reason_comes_first() -> None:
    status = with_batches(replace(DONE, processing_ms=1500), problems=("torn",))
    assert [reason.level for reason in health(status).reasons] == ["error", "warning"]


def test_ages_and_rates_of_blocks() -> None:
    blocks = {"r0-00000000": Published((0, 10, 25), (1000, 50_000, 70_000), 30)}
    (one,) = blocks.values()
    assert one.records_since(10_000) == 20
    assert one.oldest_after(0) == 1000
    assert one.oldest_after(10) == 50_000
    assert one.oldest_after(30) is None
    assert oldest_untaken(blocks, {"r0-00000000": 26}) == 70_000
    assert oldest_untaken(blocks, {"r0-00000001": 0}) is None  # a later epoch: it is finished


def test_a_program_without_a_record_is_told_by_its_files(tmp_path: Path) -> None:
    """The newest batch: the record of its delays comes with the next one."""
    program(tmp_path / "p", Batches(3))
    status = read_location(str(tmp_path / "p"))
    newest = status.batches[-1]
    assert (newest.scheduling_delay_ms, newest.processing_ms) == (None, 240 + 46)
    assert (newest.total_delay_ms, newest.plan_ms) == (None, None)
    assert status.batches[1].plan_ms == 5
    assert status.inputs[0].changes[-1].batch_id == 1
    assert status.next is not None
    assert status.next.batch_id == 3


def test_what_changed_is_read_again(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(3, failed=frozenset({2})))
    reader = LocationReader(str(tmp_path / "p"))
    assert reader.read().batches[-1].state == "running"
    (tmp_path / "p" / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert reader.read().batches[-1].state == "committed"
    (tmp_path / "p" / "offsets" / "1").unlink()
    (tmp_path / "p" / "commits" / "1").unlink()
    assert [batch.batch_id for batch in reader.read().batches] == [0, 2]


def test_a_dead_program(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(4, failed=frozenset({3})), is_alive=False)
    status = read_location(str(tmp_path / "p"))
    assert status.batches[-1].state == "interrupted"
    found = health(status)
    assert found.level == "stopped"
    assert "batch 3 runs again at its start" in found.reasons[0].text
    for batch_id in (1, 2):
        (tmp_path / "p" / "commits" / str(batch_id)).unlink()
    (reason,) = health(read_location(str(tmp_path / "p"))).reasons
    assert "batch 1 to 3 (3 batches) runs again at its start" in reason.text


def test_a_program_that_holds_its_lock_runs(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(4))
    assert read_location(str(tmp_path / "p")).is_running is None  # no lock was ever taken
    with CheckpointLocation(open_storage(tmp_path / "p")):
        assert read_location(str(tmp_path / "p")).is_running is True
    assert read_location(str(tmp_path / "p")).is_running is False
    lock = tmp_path / "p" / "driver.lock"
    lock.write_text(lock.read_text().replace(socket.gethostname(), "elsewhere"))
    assert read_location(str(tmp_path / "p")).is_running is None


def test_a_receiver_that_says_nothing_is_dead(tmp_path: Path) -> None:
    """Whatever process has its id now."""
    stream = stream_of(tmp_path, "clicks", blocks=1, records=1)
    long_ago_ms = now_ms() - 600_000
    receiver(stream, "r0", changed_ms=long_ago_ms, said_ms=long_ago_ms)
    receiver(stream, "r1", changed_ms=long_ago_ms, said_ms=now_ms() - 30_000)
    receiver(stream, "r2", changed_ms=long_ago_ms, state="stopped")
    status = read_location(str(tmp_path))
    assert [each.state for each in status.streams[0].receivers] == ["dead", "started", "stopped"]
    reasons = [each.text for each in health(status).reasons]
    assert any("receiver r0 of clicks is dead" in each for each in reasons)


def test_damage_hides_nothing_else(tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(5))
    (tmp_path / "p" / "offsets" / "2").write_text("v1\n{torn")
    status = read_location(str(tmp_path / "p"))
    assert len(status.batches) == 5
    assert any("offsets/2" in problem for problem in status.problems)
    assert health(status).level == "error"


def test_a_store_of_objects() -> None:
    journal = open_storage("memory://status-test/journal")
    stream = JournalStream.create(journal, "clicks", RecordFormat("string"))
    write_blocks(stream, [["a", "b"], ["c"]], close=False)
    write_consumer(stream, "plain", ConsumerEntry({"r0-00000000": 2}))
    status = read_location("memory://status-test/journal")
    assert status.kind == "journal"
    (found,) = status.streams
    assert (found.records, found.blocks) == (3, 2)
    (consumer,) = found.consumers
    assert (consumer.lag_records, consumer.process) == (1, None)


def test_a_query_has_the_lag_of_its_consumer_in_a_journal_beside_it(tmp_path: Path) -> None:
    journal = open_storage(tmp_path / "journal")
    stream = JournalStream.create(journal, "clicks", RecordFormat("string"))
    write_blocks(stream, [["a", "b"], ["c"]], close=False)
    # As Spark says the location of a query's checkpoint: Hadoop's short form.
    reader = Program(f"file:{tmp_path}/query", "h", 1)
    write_consumer(stream, "count", ConsumerEntry({"r0-00000000": 2}, program=reader))
    log = tmp_path / "query/offsets"
    log.mkdir(parents=True)
    (log / "0").write_text(f'v1\n{{"batchTimestampMs":{NOW}}}\n{{"clicks":{{"r0-00000000":2}}}}')
    query, _ = SharedStatus([str(tmp_path / "query"), str(tmp_path / "journal")]).all()
    assert isinstance(query, LocationStatus)
    assert (query.kind, query.inputs[0].lag_records) == ("query", 1)


def test_a_query_in_a_bucket_has_the_lag_of_its_consumer(s3_bucket: str) -> None:
    """Spark's scheme for S3 is s3a."""
    root = f"{s3_bucket}/lag"
    stream = JournalStream.create(open_storage(f"{root}/j"), "clicks", RecordFormat("string"))
    write_blocks(stream, [["a", "b"], ["c"]], close=False)
    reader = Program(f"{root}/query".replace("s3:", "s3a:"), "h", 1)
    write_consumer(stream, "count", ConsumerEntry({"r0-00000000": 2}, program=reader))
    entry = f'v1\n{{"batchTimestampMs":{NOW}}}\n{{"clicks":{{"r0-00000000":2}}}}'
    open_storage(f"{root}/query").create("offsets/0", entry.encode())
    query, _ = SharedStatus([f"{root}/query", f"{root}/j"]).all()
    assert isinstance(query, LocationStatus)
    assert query.inputs[0].lag_records == 1


def test_a_bucket_tells_when_blocks_came(s3_bucket: str) -> None:
    root = f"{s3_bucket}/status"
    journal = open_storage(f"{root}/journal")
    stream = JournalStream.create(journal, "clicks", RecordFormat("string"))
    write_blocks(stream, [["a", "b"], ["c"]], close=False)
    write_consumer(stream, "plain", ConsumerEntry({"r0-00000000": 2}))
    entry = OffsetSeq(batch_timestamp_ms=NOW, sources=('{"clicks":{"r0-00000000":2}}',))
    with CheckpointLocation(open_storage(root)) as location:
        location.plan(0, entry)
        location.run(0)
        location.commit(0)
        location.plan(1, entry)
    status = read_location(root)
    assert [each.state for each in status.batches] == ["committed", "running"]
    (found,) = status.streams
    assert (found.records, found.rate) == (3, 3 / 60)
    assert found.consumers[0].lag_ms is not None
    assert status.inputs[0].lag_records == 1


def test_what_is_no_location(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a checkpoint location nor a journal"):
        read_location(str(tmp_path))
    (found,) = SharedStatus([str(tmp_path)]).all()
    assert isinstance(found, Unreadable)


def test_who_waits_for_a_store_that_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = LocationReader.read

    def read(self: LocationReader) -> LocationStatus:
        begun.set()
        assert go_on.wait(WAIT_S)
        return real(self)

    monkeypatch.setattr(LocationReader, "read", read)
    monkeypatch.setattr(shared_module, "_GLANCE_S", WAIT_S)
    monkeypatch.setattr(shared_module, "_PATIENCE_S", 0.1)
    stream_of(tmp_path / "j", "clicks", blocks=1, records=1)
    shared = SharedStatus([str(tmp_path / "j")])
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shared.all)
        assert begun.wait(WAIT_S)
        try:
            found = threads.submit(shared.get, 0).result(timeout=WAIT_S)
        finally:
            go_on.set()
        assert isinstance(found, Unreadable)
        assert "no answer since 20" in found.error
        assert isinstance(first.result(timeout=WAIT_S)[0], LocationStatus)


def test_a_location_that_hangs_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, hangs = threading.Event(), threading.Event()
    real = LocationReader.read

    def read(self: LocationReader) -> LocationStatus:
        if self.name == "hangs" and hangs.is_set():
            assert go_on.wait(WAIT_S)
        return real(self)

    monkeypatch.setattr(LocationReader, "read", read)
    monkeypatch.setattr(shared_module, "_STATUS_S", 0)
    monkeypatch.setattr(shared_module, "_SHARE", 0)
    monkeypatch.setattr(shared_module, "_PATIENCE_S", WAIT_S)
    for name in ("hangs", "usual"):
        stream_of(tmp_path / name, "clicks", blocks=1, records=1)
    shared = SharedStatus([str(tmp_path / "hangs"), str(tmp_path / "usual")])
    known, _ = shared.all()
    hangs.set()
    try:
        monkeypatch.setattr(shared_module, "_GLANCE_S", 0.1)
        meanwhile, usual = shared.all()
        assert meanwhile == known
        assert isinstance(usual, LocationStatus)
        monkeypatch.setattr(shared_module, "_PATIENCE_S", 0.1)
        found, _ = shared.all()
        assert isinstance(found, Unreadable)
        assert "no answer since 20" in found.error
        # However long the other one takes to read, here it is shown while the first one hangs.
        assert eventually(lambda: isinstance(shared.all()[1], LocationStatus))
    finally:
        go_on.set()
    monkeypatch.setattr(shared_module, "_GLANCE_S", WAIT_S)
    assert isinstance(shared.all()[0], LocationStatus)


def test_an_error_that_comes_at_once_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the call has ended before whoever began it goes on."""

    class EndsFirst(threading.Thread):
        def start(self) -> None:
            super().start()
            self.join(0.1)

    answers: list[StorageError | LocationStatus] = [StorageError("gone", operation="read"), EMPTY]

    def read(self: LocationReader) -> LocationStatus:
        answer = answers.pop(0)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    monkeypatch.setattr(LocationReader, "read", read)
    monkeypatch.setattr(threading, "Thread", EndsFirst)
    monkeypatch.setattr(shared_module, "_STATUS_S", 0)
    monkeypatch.setattr(shared_module, "_SHARE", 0)
    shared = SharedStatus([str(tmp_path)])
    assert isinstance(shared.get(0), Unreadable)
    assert shared.get(0) == EMPTY


def test_a_status_is_shared_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_of(tmp_path / "j", "clicks", blocks=1, records=1)
    reads = 0
    real = LocationReader.read

    def read(self: LocationReader) -> LocationStatus:
        nonlocal reads
        reads += 1
        return real(self)

    monkeypatch.setattr(LocationReader, "read", read)
    monkeypatch.setattr(shared_module, "_STATUS_S", WAIT_S)  # a second may be over too soon
    shared = SharedStatus([str(tmp_path / "j")])
    assert reads == 0
    first = shared.get(0)
    assert shared.get(0) is first
    assert reads == 1
    with pytest.raises(IndexError):
        shared.get(1)

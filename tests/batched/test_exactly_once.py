"""Batches that run again with exactly-once sinks: what is planned, and what is written."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.batched import Stream, from_kafka_batched, get_message_batch
from penstock.batched.checkpoints import Checkpoints, note_read
from penstock.batched.exactly_once import ExactlyOnce, Output, Writing, resume
from penstock.batched.layout import Planned, dump_log, dump_planned, log_path, parse_planned
from penstock.batched.rewind import apply_rewind, plan_rewind
from penstock.errors import (
    BatchFailedError,
    ConcurrentDriverError,
    ConfigError,
    KafkaDataLossError,
    LogFormatError,
    RecoveryMismatchError,
    StorageError,
)
from penstock.kafka import KafkaRange
from penstock.kafka.sink import Encoder, batches, write_partition
from penstock.kafka.sink.tokens import batch_name, partition_name
from penstock.storage import open_storage
from tests.kafka.broker import Broker
from tests.kafka.test_sink import forget

from .functions import fail_without
from .reading import read_topic
from .site import Site

ID = "7a1ad4b5-6d0f-4a0e-a1c5-1f0ac1d5c6b0"
A, B = KafkaRange("a", 0, 3, 6), KafkaRange("b", 1, 0, 2)
PLANNED = Planned(ID, 7, (A, B), ("out",))
CONF = {"bootstrap.servers": "127.0.0.1:1"}


def test_the_text_of_a_planned_batch() -> None:
    text = b'{"id": "%s", "batch": 7, "ranges": {"a": {"0": [3, 5]}, "b": {"1": [0, 1]}},'
    text += b' "sinks": ["out"]}'
    assert dump_planned(PLANNED) == text % ID.encode()
    assert parse_planned(dump_planned(PLANNED)) == PLANNED


def test_a_planned_batch_is_of_the_sinks_that_it_names() -> None:
    assert PLANNED.is_of("out")
    assert not PLANNED.is_of("other")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b'{"id": 1, "batch": 7, "ranges": {}}',
        b"\xff",
        dump_planned(Planned(ID, -2, (A,))),
        dump_planned(PLANNED).replace(b"7", b"1.5"),
        dump_planned(PLANNED).replace(b"7", b"true"),
        dump_planned(PLANNED).replace(b"[3, 5]", b"[-3, 5]"),
        dump_planned(Planned(ID, 7, (KafkaRange("a", 0, 6, 3),))),
    ],
)
def test_a_planned_batch_that_is_damaged_is_no_start(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "planned").write_bytes(text)
    with pytest.raises(LogFormatError, match="the planned batch is damaged"):
        Checkpoints(tmp_path).planned()


@pytest.mark.parametrize(
    ("a", "b", "again", "missing"),
    [
        (3, 0, [A, B], []),  # before the batch
        (6, 2, [], []),  # after it
        (6, 0, [], [B]),  # between two topics' checkpoints
        (3, 2, [], [A]),
        (9, 2, [], []),  # a program without such sinks went on
    ],
)
def test_what_runs_again(
    a: int, b: int, again: list[KafkaRange], missing: list[KafkaRange]
) -> None:
    assert resume(PLANNED, {"a": {0: a}, "b": {1: b}}) == (again, missing)


@pytest.mark.parametrize("at", [0, 4])
def test_checkpoints_that_are_not_at_the_batch_are_no_start(at: int) -> None:
    with pytest.raises(RecoveryMismatchError, match=rf"a/0 is done up to {at}.*\[3, 6\)"):
        resume(PLANNED, {"a": {0: at}, "b": {1: 0}})


def test_a_partition_that_was_new_in_the_batch_has_no_checkpoint_yet() -> None:
    late = KafkaRange("a", 1, 5, 7)  # its first records were deleted before
    planned = Planned(ID, 7, (A, late))
    assert resume(planned, {"a": {0: 3}}) == ([A, late], [])
    assert resume(planned, {"a": {0: 6}}) == ([], [late])


def test_nothing_was_planned() -> None:
    assert resume(Planned(ID, -1, ()), {"a": {0: 3}}) == ([], [])


def die_before_the_checkpoint(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a batch that is written, and gets no checkpoint."""

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_add", refuse)
        stream.start()
        with pytest.raises(StorageError):
            stream.awaitTermination()


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_that_was_written_and_has_no_checkpoint_is_not_written_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"1", b"2"])
    site.broker.produce(site.topic, [b"3"], partition=1)
    die_before_the_checkpoint(stream, monkeypatch)
    assert sorted(filter(None, site.written())) == [b"1", b"2", b"3"]
    assert site.checkpoint() is None
    site.broker.produce(site.topic, [b"4"])  # not in the batch that runs again
    site.start(stream)
    site.wait({"0": 2, "1": 0})
    assert sorted(filter(None, site.written())) == [b"1", b"2", b"3", b"4"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_of_which_a_part_was_written(site: Site, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    source = site.source().flatten().map(fail_without, b"bad", str(allowed))
    stream = source.to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"1", b"2"])
    site.broker.produce(site.topic, [b"bad"], partition=1)
    stream.start()
    with pytest.raises(BatchFailedError, match="not allowed yet"):
        stream.awaitTermination()
    before = site.written()
    assert before in ([], [b"1", b"2"])  # Spark cancels the other task, or does not
    allowed.touch()
    site.start(stream)
    site.wait({"0": 1, "1": 0})
    assert sorted(filter(None, site.written())) == [b"1", b"2", b"bad"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_that_waits_and_whose_records_are_gone(site: Site, tmp_path: Path) -> None:
    """Each start says what goes on, and that does."""
    source = site.source().flatten().map(fail_without, b"1", str(tmp_path / "allowed"))
    stream = source.to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"1"])
    stream.start()
    with pytest.raises(BatchFailedError, match="not allowed yet"):
        stream.awaitTermination()
    (tmp_path / "allowed").touch()
    site.broker.delete_records(site.topic, 1)
    for _ in range(2):
        stream.start()
        with pytest.raises(KafkaDataLossError, match=rf"offset 0 of {site.topic}/0 .*gone") as lost:
            stream.awaitTermination()
        assert "rewind --to-offsets" in str(lost.value)
        assert "on_data_loss" not in str(lost.value)
    with pytest.raises(KafkaDataLossError, match="rewind --to-offsets"):  # as streamz' does it
        get_message_batch(site.broker.conf, site.topic, 0, 0, 0)
    apply_rewind(site.path, plan_rewind(site.path, offsets={site.topic: {0: 0}}))
    site.broker.produce(site.topic, [b"2"])
    site.start(stream)
    site.wait({"0": 1})
    assert site.written() == [b"2"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_sink_that_is_added_while_a_batch_waits(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = site.source().flatten()
    stream = source.to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"0"])
    site.start(stream)
    site.wait({"0": 0})
    stream.stop()
    site.broker.produce(site.topic, [b"1"])
    die_before_the_checkpoint(stream, monkeypatch)
    new = site.broker.create_topic(f"{site.out}-new")
    site.start(source.to_kafka(new, site.broker.conf, delivery="exactly_once"))
    site.wait({"0": 1})
    assert site.written() == [b"0", b"1"]
    assert read_topic(site.broker, new) == [b"1"]


@pytest.mark.spark
@pytest.mark.slow
def test_programs_without_the_sinks_that_a_batch_waits_for(site: Site, tmp_path: Path) -> None:
    """Their checkpoints would say that it was written; under another name it would be doubled."""
    source = site.source().flatten()
    stream = source.map(fail_without, b"1", str(tmp_path / "allowed")).to_kafka(
        site.out, site.broker.conf, delivery="exactly_once"
    )
    site.broker.produce(site.topic, [b"1"])
    site.broker.produce(site.topic, [b"1"], partition=1)
    stream.start()
    with pytest.raises(BatchFailedError, match="not allowed yet"):
        stream.awaitTermination()
    plain = site.source(npartitions=1).flatten().to_kafka(site.out, site.broker.conf)
    with pytest.raises(RecoveryMismatchError, match=f"program does not have: {site.out}"):
        plain.start()
    named = site.source().flatten()
    named = named.to_kafka(site.out, site.broker.conf, delivery="exactly_once", name="other")
    with pytest.raises(RecoveryMismatchError, match=f"program does not have: {site.out}"):
        named.start()
    (tmp_path / "allowed").touch()
    site.start(stream)
    site.wait({"0": 0, "1": 0})
    assert site.written() == [b"1", b"1"]
    stream.stop()
    site.start(plain)  # nothing waits any more


@pytest.mark.spark
@pytest.mark.slow
def test_a_log_that_a_late_task_writes_ends_the_program(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"0"])
    site.start(stream)
    site.wait({"0": 0})
    add = Checkpoints._add

    def late(self: Checkpoints) -> None:
        # As tasks of the first batch and the second can, in the same moment.
        self._storage.create(log_path(site.topic, 0), dump_log(1), overwrite=True)
        add(self)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_add", late)
        site.broker.produce(site.topic, [b"1"])
        with pytest.raises(StorageError, match="was written up to 2, and no checkpoint has it"):
            stream.awaitTermination()
    site.start(stream)
    site.wait({"0": 1})
    assert site.written() == [b"0", b"1"]


class Run:
    """What a program does, without Spark and topics: record n of a topic is "n"."""

    def __init__(self, url: str, broker: Broker, out: str) -> None:
        self.out = out
        self.checkpoints = Checkpoints(url)
        self.sinks = ExactlyOnce({1: Output(out, broker.conf, "o")}, self.checkpoints)
        ends = self.checkpoints.open(["a"])
        self.again = self.sinks.open(ends)
        if not ends:
            with suppress(ConcurrentDriverError):
                self.checkpoints.begin_topic("a", {})

    def plan(self, start: int, end: int) -> tuple[KafkaRange, Writing]:
        wanted = KafkaRange("a", 0, start, end)
        self.checkpoints.begin([wanted])
        return wanted, self.sinks.begin([wanted])

    def write(self, wanted: KafkaRange, writing: Writing) -> None:
        note_read(open_storage(self.checkpoints.url), "a", 0, wanted.end_offset)
        ((to, attempt),) = writing.sinks.values()
        values = (str(n) for n in range(wanted.start_offset, wanted.end_offset))
        write_partition(to, attempt, 0, Encoder(self.out)(values))

    def batch(self, start: int, end: int) -> None:
        wanted, writing = self.plan(start, end)
        self.write(wanted, writing)
        self.checkpoints.finish([wanted])

    def close(self) -> None:
        self.sinks.close()
        self.checkpoints.close()

    @property
    def group(self) -> str:
        """Of the sink's tokens."""
        planned = self.checkpoints.planned()
        assert planned is not None
        return batch_name(planned.id, "o")


@pytest.mark.slow
def test_two_first_starts_on_a_store_without_locks(broker: Broker) -> None:
    url, out = f"memory://{uuid.uuid4().hex}/p", broker.create_topic("two-first-starts")
    first, second = Run(url, broker, out), Run(url, broker, out)
    with pytest.raises(ConcurrentDriverError):
        first.batch(0, 3)
    second.batch(0, 3)
    assert sorted(filter(None, read_topic(broker, out))) == [b"0", b"1", b"2"]


@pytest.mark.slow
def test_a_program_that_wakes_leaves_the_plan_of_its_successor(broker: Broker) -> None:
    url, out = f"memory://{uuid.uuid4().hex}/p", broker.create_topic("wakes-up")
    slow = Run(url, broker, out)
    slow.batch(0, 3)
    successor = Run(url, broker, out)
    successor.batch(3, 5)
    successor.write(*successor.plan(5, 9))  # and dies
    with pytest.raises(ConcurrentDriverError):
        slow.plan(3, 4)
    last = Run(url, broker, out)
    assert last.again == [KafkaRange("a", 0, 5, 9)]
    last.batch(5, 9)
    last.batch(9, 12)
    assert read_topic(broker, out) == [b"%d" % n for n in range(12)]


@pytest.mark.slow
def test_a_program_whose_tokens_expired_while_it_was_idle(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = broker.create_topic("idle")
    monkeypatch.setattr(batches, "_IDLE_S", 0)

    def expire(run: Run) -> None:
        for name in (run.group, partition_name(run.group, 0)):
            forget(broker, out, name)

    run = Run(str(tmp_path), broker, out)
    run.batch(0, 3)
    expire(run)
    run.batch(3, 5)  # while it runs
    expire(run)
    run.close()
    run = Run(str(tmp_path), broker, out)
    run.batch(5, 7)  # after a restart
    run.write(*run.plan(7, 9))  # and dies
    run.close()
    run = Run(str(tmp_path), broker, out)
    assert run.again == [KafkaRange("a", 0, 7, 9)]
    run.batch(7, 9)
    run.close()
    assert read_topic(broker, out) == [b"%d" % n for n in range(9)]


@pytest.mark.spark
@pytest.mark.slow
def test_a_topic_that_is_left_out_while_its_batch_waits(site: Site) -> None:
    site.path.mkdir()
    (site.path / "planned").write_bytes(dump_planned(PLANNED))
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    with pytest.raises(RecoveryMismatchError, match="records of a, b, which this program"):
        stream.start()


def test_what_cannot_be_exactly_once(tmp_path: Path) -> None:
    plain = from_kafka_batched(["t"], CONF).flatten()
    with pytest.raises(ConfigError, match="without checkpoints"):
        plain.to_kafka("out", CONF, delivery="exactly_once").start()
    groups = from_kafka_batched(["t"], CONF, tmp_path).flatten().partition(3)
    with pytest.raises(ConfigError, match="takes elements of several ranges"):
        groups.to_kafka("out", CONF, delivery="exactly_once").start()
    twice = from_kafka_batched(["t"], CONF, tmp_path).flatten()
    for _ in range(2):
        stream = twice.to_kafka("out", CONF, delivery="exactly_once")
    with pytest.raises(ConfigError, match="two exactly-once sinks of one name"):
        stream.start()
    with pytest.raises(ConfigError, match="delivery='twice'"):
        plain.to_kafka("out", CONF, delivery="twice")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="output name 'out/0' is not allowed"):
        plain.to_kafka("out", CONF, delivery="exactly_once", name="out/0")

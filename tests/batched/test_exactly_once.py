"""Batches that run again with exactly-once sinks: what is planned, and what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.batched import from_kafka_batched
from penstock.batched.checkpoints import Checkpoints
from penstock.batched.exactly_once import resume
from penstock.batched.layout import Planned, dump_planned, parse_planned
from penstock.errors import (
    BatchFailedError,
    ConfigError,
    LogFormatError,
    RecoveryMismatchError,
    StorageError,
)
from penstock.kafka import KafkaRange

from .functions import fail_without
from .site import Site

ID = "7a1ad4b5-6d0f-4a0e-a1c5-1f0ac1d5c6b0"
A, B = KafkaRange("a", 0, 3, 6), KafkaRange("b", 1, 0, 2)
PLANNED = Planned(ID, 7, (A, B))
CONF = {"bootstrap.servers": "127.0.0.1:1"}


def test_the_text_of_a_planned_batch() -> None:
    text = b'{"id": "%s", "batch": 7, "ranges": {"a": {"0": [3, 5]}, "b": {"1": [0, 1]}}}'
    assert dump_planned(PLANNED) == text % ID.encode()
    assert parse_planned(dump_planned(PLANNED)) == PLANNED


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{}", b"[]", b'{"id": 1, "batch": 7, "ranges": {}}', b"\xff"]
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
        (0, 0, [], []),  # moved back
        (9, 2, [], []),  # moved on
    ],
)
def test_what_runs_again(
    a: int, b: int, again: list[KafkaRange], missing: list[KafkaRange]
) -> None:
    assert resume(PLANNED, {"a": {0: a}, "b": {1: b}}) == (again, missing)


def test_a_topic_of_which_one_partition_was_moved_does_not_run_again() -> None:
    planned = Planned(ID, 7, (A, KafkaRange("a", 1, 0, 2)))
    assert resume(planned, {"a": {0: 6, 1: 0}}) == ([], [])


def test_nothing_was_planned() -> None:
    assert resume(None, {"a": {0: 3}}) == ([], [])


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_that_was_written_and_has_no_checkpoint_is_not_written_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    stream = site.source().flatten().to_kafka(site.out, site.broker.conf, delivery="exactly_once")
    site.broker.produce(site.topic, [b"1", b"2"])
    site.broker.produce(site.topic, [b"3"], partition=1)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_add", refuse)
        stream.start()
        with pytest.raises(StorageError):
            stream.awaitTermination()
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

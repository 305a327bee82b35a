"""What decoders refuse: fails the batch, is dropped, or becomes dead letters."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import RDD

from penstock.errors import BatchFailedError, ConfigError
from penstock.journal.bad_records.dead_letters import DeadLetterFolder
from penstock.storage import attach_storage
from penstock.streaming import DStream
from tests.kafka.broker import Broker
from tests.kafka.program import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"bad-{next(_number)}")


def test_what_a_decoder_refuses_fails_the_batch(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"1", b"one", b"2"])
    stepper = program.start([topic], valueDecoder=int)
    told = rf"a decoder refused record 1 of {topic}-0: ValueError: invalid literal.*b'one'"
    with pytest.raises(BatchFailedError, match=told):
        stepper.step()


def test_what_a_decoder_refuses_is_dropped(
    program: Program, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    program.broker.produce(topic, [b"1", b"one", None, b"2"])
    program.broker.produce(topic, [b"3"], key=b"\xff")
    seen: list[int | None] = []
    program.start(
        [topic],
        keyDecoder=bytes.decode,
        valueDecoder=int,
        bad_records="drop",
        define=lambda s: s.foreachRDD(lambda rdd: seen.extend(r.value for r in rdd.collect())),
    ).step(2)
    assert seen == [1, None, 2]
    assert "refused 2 records of stream numbers, which were dropped" in caplog.text


def test_what_a_decoder_refuses_is_a_dead_letter_once(program: Program, topic: str) -> None:
    bad = set(range(7, 251_000, 2000))
    values = [b"bad" if n in bad else b"%d" % n for n in range(251_000)]
    program.broker.produce(topic, values)

    def twice(rdd: RDD[int]) -> None:
        assert rdd.getNumPartitions() > 1
        assert [rdd.count(), rdd.count()] == [251_000 - len(bad)] * 2

    def again(stream: DStream) -> None:
        stream.foreachRDD(twice)
        stream.foreachRDD(fail)

    options = {"valueDecoder": int, "bad_records": "dead_letter"}
    stepper = program.start([topic], define=again, **options)
    with pytest.raises(BatchFailedError, match="not yet"):
        stepper.step()
    program.start([topic], define=lambda stream: stream.foreachRDD(twice), **options)
    program.start([topic], define=lambda stream: stream.count().pprint(), **options).step()
    program.stop()
    letters = dead_letters(program.location)
    assert letters.column("offset").to_pylist() == sorted(bad)
    assert set(letters.column("raw").to_pylist()) == {b"bad"}
    assert set(letters.column("writer").to_pylist()) == {f"{topic}-0"}


def fail(rdd: RDD[int]) -> None:
    raise RuntimeError("not yet")


def dead_letters(location: Path) -> pa.Table:
    dead = DeadLetterFolder(attach_storage(f"{location}/journal"), "numbers")
    return pa.concat_tables(map(dead.read, dead.waiting())).sort_by("offset")


def test_a_way_that_does_not_exist(program: Program) -> None:
    with pytest.raises(ConfigError, match="bad_records is 'ignore'"):
        program.start(["topic"], valueDecoder=int, bad_records="ignore")

"""The exactly-once sink's protocol on a real broker, without Spark: kills, two of all, resizes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count, repeat
from pathlib import Path
from secrets import token_hex
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.errors import ConcurrentDriverError, ConfigError, KafkaError, KafkaFencedError
from penstock.kafka.sink import (
    Encoder,
    Outgoing,
    SinkBatches,
    batches,
    partition,
    producer,
    send_partition,
    transactions,
    write_partition,
)
from penstock.kafka.sink.tokens import Done, partition_name
from penstock.kafka.sink.transactions import TransactionalSender
from tests.forked import run_all_forked
from tests.kafka import sink_driver
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import (
    RECORDS,
    SinkDriver,
    committed,
    expected,
    records_of,
    run_killed,
)
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow
_number = count()
LOCATIONS = 6


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"sink-{next(_number)}", partitions=2)


Make = Callable[..., SinkDriver]


@pytest.fixture
def driver(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as drivers:

        def make(partitions: int = 2) -> SinkDriver:
            made = SinkDriver(broker.conf, topic, tmp_path / "location", partitions)
            drivers.callback(made.sink.close)
            return made

        yield make


def test_each_batch_is_written_once(broker: Broker, topic: str, driver: Make) -> None:
    driver().run(2)
    driver(4).run(4)  # resized between batches, by a driver that starts anew
    driver(1).run(6)
    driver(2).run(8)
    assert committed(broker, topic) == expected(8)


def begun(first: SinkDriver, tasks: int) -> int:
    """Begin batch 0, and write so many of its partitions; return the attempt."""
    first.start()
    attempt = first.sink.begin(0, first.partitions, may_be_written=False).number
    for index in range(tasks):
        first.task(0, attempt, index)
    return attempt


@pytest.mark.storm
def test_killed_before_each_request(broker: Broker, tmp_path: Path) -> None:
    """In locations at the same time: drivers mostly wait for what a kill left open to be aborted.

    Each driver of a location is killed some steps later than the one before it.
    """
    topics = [broker.create_topic(f"sink-{next(_number)}", partitions=2) for _ in range(LOCATIONS)]

    def run(until: int, requests: Iterable[int]) -> set[int]:
        """Run a driver in each location, killed before its nth request; return the exit codes."""
        return run_all_forked(
            partial(run_killed, broker.conf, topic, str(tmp_path / topic), 2, until, request)
            for topic, request in zip(topics, requests, strict=False)
        )

    for first in count(1, LOCATIONS):
        until = 2 * first // LOCATIONS + 2
        codes = run(until, count(first))
        if codes != {-signal.SIGKILL}:
            break
    assert codes <= {-signal.SIGKILL, 0}
    assert first > 20
    assert run(until, repeat(0)) == {0}
    assert all(committed(broker, topic) == expected(until) for topic in topics)


def test_what_is_written_is_proved_and_the_rest_is_written(
    broker: Broker, topic: str, driver: Make
) -> None:
    begun(driver(), tasks=1)
    again = driver()
    again.start()
    again.write(0, again=True)
    assert committed(broker, topic) == expected(1)
    again.write(0, again=True)  # and once more: all is done
    assert committed(broker, topic) == expected(1)


def test_a_batch_in_part_keeps_its_partitions(broker: Broker, topic: str, driver: Make) -> None:
    begun(driver(2), tasks=1)
    again = driver(3)
    again.start()
    with pytest.raises(KafkaError, match=r"had 2 partitions, of which 1 are written, and has 3"):
        again.write(0, again=True)
    assert committed(broker, topic).total() == RECORDS // 2


def test_a_batch_of_which_nothing_is_written_may_have_others(
    broker: Broker, topic: str, driver: Make
) -> None:
    driver(3).run(1)
    zombie = driver(3)
    zombie.start()
    attempt = zombie.sink.begin(1, 3, may_be_written=False).number
    again = driver(1)
    again.start()
    again.write(1, again=True)
    for index in range(3):  # its tasks wake: they find the claim, also where no one wrote
        with pytest.raises(KafkaError, match=f"attempt {attempt} at batch 1 was superseded"):
            zombie.task(1, attempt, index)
    assert committed(broker, topic) == expected(2)


def test_other_records_than_before_are_refused(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(driver(), tasks=1)
    again = driver()
    again.start()
    monkeypatch.setattr(sink_driver, "records_of", lambda *args: Encoder(topic)(["1", "2", "3"]))
    with pytest.raises(KafkaError, match=r"partition 0 of batch 0 was written with 3 records"):
        again.write(0, again=True)
    assert committed(broker, topic).total() == RECORDS // 2


def test_a_written_partition_without_records_is_refused(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(driver(), tasks=1)
    again = driver()
    again.start()
    monkeypatch.setattr(sink_driver, "records_of", lambda *args: iter(()))
    with pytest.raises(KafkaError, match=r"partition 0 of batch 0 was written with 3 records, and"):
        again.write(0, again=True)


def test_a_driver_that_wakes_in_its_claims_claims_nothing_of_a_later_attempt(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(driver(), tasks=0)
    asleep, between, last = driver(), driver(), driver()
    asleep.start()
    claim = SinkBatches._claim_one

    def claim_late(sink: SinkBatches, batch_id: int, attempt: int, index: int) -> bool:
        if sink is asleep.sink and index == 1:
            monkeypatch.undo()
            for later in (between, last):
                later.start()
                later.sink.begin(0, 2, may_be_written=True)
        return claim(sink, batch_id, attempt, index)

    monkeypatch.setattr(SinkBatches, "_claim_one", claim_late)
    with pytest.raises(ConcurrentDriverError, match="another driver has taken over this output"):
        asleep.write(0, again=True)
    with pytest.raises(KafkaError, match="attempt 2 at batch 0 was superseded"):
        between.task(0, 2, 1)
    last.write(0, again=True)
    assert committed(broker, topic) == expected(1)


def test_outputs_share_no_tokens(broker: Broker, topic: str) -> None:
    with pytest.raises(ConfigError, match="output name 'copy/0' is not possible"):
        SinkBatches(broker.conf, topic, "location", "copy/0")


def test_a_driver_that_wakes_is_fenced(broker: Broker, topic: str, driver: Make) -> None:
    asleep, awake = driver(), driver()
    begun(asleep, tasks=0)
    awake.start()
    awake.write(0, again=True)
    with pytest.raises(ConcurrentDriverError, match="another driver has taken over this output"):
        asleep.write(1, again=False)
    awake.write(1, again=False)
    assert committed(broker, topic) == expected(2)


def while_writing(
    driver: SinkDriver, call: Callable[[], object], batch_id: int = 0
) -> Iterator[Outgoing]:
    """Return the records of partition 0 of a batch; call when some are sent."""
    first, *others = records_of(batch_id, driver.partitions, 0, driver.topic)
    yield first
    call()
    yield from others


def test_a_task_whose_driver_is_replaced_writes_nothing(
    broker: Broker, topic: str, driver: Make
) -> None:
    zombie, again = driver(), driver()
    attempt = begun(zombie, tasks=0)

    def replace() -> None:
        again.start()
        again.write(0, again=True)

    with pytest.raises(KafkaError, match=f"attempt {attempt} at batch 0 was superseded"):
        write_partition(zombie.sink.destination(0), attempt, 0, while_writing(zombie, replace))
    assert committed(broker, topic) == expected(1)


def test_two_tasks_of_a_partition(broker: Broker, topic: str, driver: Make) -> None:
    """As in speculative execution: the slower one ends with the result of the other."""
    both = driver()
    attempt = begun(both, tasks=0)
    slow = while_writing(both, lambda: both.task(0, attempt, 0))
    assert write_partition(both.sink.destination(0), attempt, 0, slow) == RECORDS // 2
    both.task(0, attempt, 1)
    assert committed(broker, topic) == expected(1)


def test_a_late_task_of_a_batch_that_is_written_fences_none(
    broker: Broker, topic: str, driver: Make
) -> None:
    one = driver()
    written = begun(one, tasks=2)
    attempt = one.sink.begin(1, 2, may_be_written=False).number
    records = while_writing(one, lambda: one.task(0, written, 0), batch_id=1)
    assert write_partition(one.sink.destination(1), attempt, 0, records) == RECORDS // 2
    one.task(1, attempt, 1)
    assert committed(broker, topic) == expected(2)


def test_a_late_task_of_an_earlier_attempt_fences_none(
    broker: Broker, topic: str, driver: Make
) -> None:
    zombie, again = driver(), driver()
    earlier = begun(zombie, tasks=0)
    again.start()
    attempt = again.sink.begin(0, 2, may_be_written=True).number

    def come_late() -> None:
        with pytest.raises(KafkaError, match=f"attempt {earlier} at batch 0 was superseded"):
            zombie.task(0, earlier, 0)

    records = while_writing(again, come_late)
    assert write_partition(again.sink.destination(0), attempt, 0, records) == RECORDS // 2
    again.task(0, attempt, 1)
    assert committed(broker, topic) == expected(1)


def test_a_producer_that_was_fenced_says_so_whatever_it_is_asked(
    broker: Broker, topic: str
) -> None:
    old, new = (TransactionalSender(broker.conf, topic, f"t/{topic}", Done) for _ in range(2))
    (record,) = Encoder(topic)(["x"])
    old.begin_epoch()
    old.begin()
    new.begin_epoch()
    old.send(record)
    for call in (lambda: old.commit(Done(1, 1)), lambda: old.send(record)):
        with pytest.raises(KafkaFencedError, match="another producer took over this partition"):
            call()
    for each in (old, new):
        each.close()


def test_a_task_waits_for_the_one_that_fenced_it(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    limit_s = 2.0
    conf = {**broker.conf, "transaction.timeout.ms": round(1000 * limit_s)}
    one = SinkDriver(conf, topic, tmp_path / "location")
    attempt = begun(one, tasks=0)
    other = TransactionalSender(conf, topic, f"penstock/location/{topic}/0", Done)
    start_s = time.monotonic()
    slow = while_writing(one, other.begin_epoch)
    with pytest.raises(KafkaFencedError, match="took this partition over, and did not write it"):
        write_partition(one.sink.destination(0), attempt, 0, slow)
    assert time.monotonic() - start_s > limit_s
    other.close()


def test_a_task_that_is_tried_again_after_its_commit(
    broker: Broker, topic: str, driver: Make
) -> None:
    one = driver()
    attempt = begun(one, tasks=2)
    assert one.task(0, attempt, 0) == RECORDS // 2
    assert committed(broker, topic) == expected(1)


def test_tokens_that_are_lost_end_the_program(broker: Broker, topic: str, driver: Make) -> None:
    begun(driver(), tasks=1)
    forget(broker, topic, f"penstock/location/{topic}")
    with pytest.raises(KafkaError, match="do not know any more which part of it was written"):
        driver().sink.open([0])
    unopened = driver().sink  # as DataFrames are written
    with pytest.raises(KafkaError, match="batch 1 runs again, and the brokers do not know"):
        unopened.begin(1, 2, may_be_written=True)
    assert committed(broker, topic).total() == RECORDS // 2


def test_the_token_of_a_partition_alone_may_be_lost(
    broker: Broker, topic: str, driver: Make
) -> None:
    driver().run(1)
    forget(broker, topic, f"penstock/location/{topic}/0")
    driver().run(2)
    assert committed(broker, topic) == expected(2)


def test_what_is_written_is_not_forgotten_before_that_it_was_begun(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch with two attempts: brokers forget tokens in the order in which they came."""
    begun(driver(), tasks=1)
    came: list[str] = []
    commit = TransactionalSender.commit

    def noted(sender: TransactionalSender[Any], token: Any) -> None:
        commit(sender, token)
        came[:] = [*(name for name in came if name != sender.name), sender.name]

    with monkeypatch.context() as noting:
        noting.setattr(TransactionalSender, "commit", noted)
        driver().sink.begin(0, 2, may_be_written=True)
    assert len(came) == 3
    forget(broker, topic, came[0])
    with pytest.raises(KafkaError, match="do not know any more which part of it was written"):
        driver().sink.open([0])
    assert committed(broker, topic).total() == RECORDS // 2


def test_a_program_goes_on_when_only_what_it_began_is_forgotten(
    broker: Broker, topic: str, driver: Make
) -> None:
    driver().run(3)
    forget(broker, topic, f"penstock/location/{topic}")
    driver().run(5)
    driver(3).run(6)
    assert committed(broker, topic) == expected(6)


def test_a_take_over_that_failed_is_made_again(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver()
    one.start()
    monkeypatch.setattr(batches, "_IDLE_S", 0)  # so each batch takes over
    with monkeypatch.context() as away:
        away.setattr(transactions, "PATIENCE_S", 0)
        away.setattr(transactions, "_TIMEOUT_S", 0.001)
        with pytest.raises(KafkaError, match=r"write to Kafka|read token"):
            one.write(0, again=False)
    one.write(0, again=True)
    assert committed(broker, topic) == expected(1)


def test_a_commit_without_an_answer_is_made_again(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver()
    one.start()
    with monkeypatch.context() as away:
        away.setattr(transactions, "PATIENCE_S", 0)
        away.setattr(transactions, "_TIMEOUT_S", 0.0001)
        with pytest.raises(KafkaError, match="write to Kafka"):
            one.write(0, again=False)
    one.write(0, again=True)
    assert committed(broker, topic) == expected(1)


def test_a_token_whose_commit_was_not_answered_is_the_drivers_own(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver()
    one.run(1)
    monkeypatch.setattr(batches, "_IDLE_S", 0)  # so each batch reads the token
    with monkeypatch.context() as lost:
        commit = TransactionalSender.commit

        def commit_unheard(sender: TransactionalSender[Any], token: Any) -> None:
            commit(sender, token)
            raise KafkaError("no answer", operation="write to Kafka")

        lost.setattr(TransactionalSender, "commit", commit_unheard)
        with pytest.raises(KafkaError, match="no answer"):
            one.write(1, again=False)
    one.write(1, again=True)
    assert committed(broker, topic) == expected(2)


def test_a_program_that_had_nothing_to_write_for_long(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, group = driver(), f"penstock/location/{topic}"
    begun(quiet, tasks=2)
    forget(broker, topic, group)
    monkeypatch.setattr(batches, "_IDLE_S", 0)
    with pytest.raises(KafkaError, match="batch 0 is empty, but the sink has begun it with 2 part"):
        quiet.sink.keep(0)  # it may not be done: nothing is kept of it
    with pytest.raises(KafkaError, match="do not know any more"):
        driver().sink.open([0])
    quiet.write(1, again=False)
    forget(broker, topic, group)
    quiet.sink.keep(2)
    again = driver()
    again.sink.open([2])
    again.write(2, again=True)
    assert committed(broker, topic) == expected(3)


def test_a_location_that_was_restored_from_before_a_quiet_week(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its last batch wrote is forgotten, and that it was begun is not."""
    quiet, group = driver(), f"penstock/location/{topic}"
    attempt = begun(quiet, tasks=2)
    monkeypatch.setattr(batches, "_IDLE_S", 0)
    quiet.sink.keep(1)
    for index in (0, 1):
        forget(broker, topic, partition_name(group, index))
    with pytest.raises(KafkaError, match="superseded"):
        quiet.task(0, attempt, 0)  # one that slept for a week
    restored = driver()
    restored.start()
    with pytest.raises(
        KafkaError, match="batch 0 is to be written, but the sink has begun batch 1"
    ):
        restored.write(0, again=True)
    assert committed(broker, topic) == expected(1)


def test_a_location_that_was_restored_is_refused(
    broker: Broker, topic: str, driver: Make, tmp_path: Path
) -> None:
    driver().run(3)
    for batch_id in (1, 2):
        (tmp_path / "location" / f"commit-{batch_id}").unlink()
    with pytest.raises(
        KafkaError, match="batch 1 is to be written, but the sink has begun batch 2"
    ):
        driver().run(3)
    assert committed(broker, topic) == expected(3)


def test_a_location_that_was_restored_where_the_batch_is_empty_now(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch would have its records again, under an id that no token is of."""
    driver().run(3)
    restored = driver()
    restored.start()
    with pytest.raises(KafkaError, match="batch 2 is empty, but the sink has begun it with 2"):
        restored.sink.keep(2)
    with pytest.raises(
        KafkaError, match="batch 1 is to be written, but the sink has begun batch 2"
    ):
        restored.sink.keep(1)
    monkeypatch.setattr(batches, "_IDLE_S", 0)
    restored.sink.keep(3)
    restored.sink.keep(3)  # it runs again, after a restart say


def test_a_transaction_that_takes_too_long(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {**broker.conf, "transaction.timeout.ms": 50_000}
    one = SinkDriver(conf, topic, tmp_path / "location")
    attempt = begun(one, tasks=0)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 51, sleep=time.sleep)
    slow = while_writing(one, lambda: monkeypatch.setattr(transactions, "time", later))
    with pytest.raises(
        KafkaError, match=r"was open for \d+ s, and the brokers abort it after 50 s.*ti"
    ):
        write_partition(one.sink.destination(0), attempt, 0, slow)
    assert not committed(broker, topic)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_record_that_is_refused_is_named(
    broker: Broker, tmp_path: Path, exactly_once: bool
) -> None:
    topic = broker.create_topic(f"small-{next(_number)}", max_message_bytes="500")
    conf = {**broker.conf, "batch.num.messages": 1}
    records = Encoder(topic)(["x", "y" * 1000, "z" * 1000])
    one = SinkDriver(conf, topic, tmp_path / "location")
    attempt = begun(one, tasks=0)
    with pytest.raises(  # noqa: PT012
        KafkaError,
        match=rf"MSG_SIZE_TOO_LARGE.*max\.message\.bytes of the topic.*"
        rf"topic={topic} partition=0 record=key None, value b'yyy",
    ):
        if exactly_once:
            write_partition(one.sink.destination(0), attempt, 0, records)
        else:
            send_partition(conf, records)


def test_an_unknown_topic(broker: Broker, driver: Make, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match=r"Unknown topic.*create the topic"):
        SinkDriver(broker.conf, "nowhere", tmp_path / "location").start()


def test_records_without_transactions(broker: Broker, topic: str) -> None:
    for batch_id in (0, 0, 1):  # the second time doubles
        assert send_partition(broker.conf, records_of(batch_id, 1, 0, topic)) == RECORDS
    assert committed(broker, topic) == expected(2) + expected(1)


def forget(broker: Broker, topic: str, group: str) -> None:
    """Do what the brokers do after offsets.retention.minutes."""
    admin = AdminClient(broker.conf)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)


def test_a_batch_after_one_that_was_proved(broker: Broker, topic: str, driver: Make) -> None:
    """Executors keep producers, which a claim has fenced."""
    begun(driver(), tasks=2)
    again = driver()
    again.start()
    again.write(0, again=True)
    again.write(1, again=False)
    assert committed(broker, topic) == expected(2)


class Stuck:
    """A client of which one call does not return, as after some restarts of a broker."""

    def __init__(self, client: Any, call: str, ends: Event) -> None:
        self._client = client
        self._call = call
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return self._wait if name == self._call else getattr(self._client, name)

    def _wait(self, *args: Any) -> None:
        self._ends.wait()


@pytest.mark.parametrize("stuck", [0, 1], ids=["driver", "task"])
def test_a_client_that_does_not_return(
    broker: Broker, topic: str, driver: Make, monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    made, ends, turns = transactions.Sender, Event(), count()

    def make(*args: Any, **own: Any) -> producer.Sender:
        sender = made(*args, **own)
        if next(turns) == stuck:
            sender.client = Stuck(sender.client, "send_offsets_to_transaction", ends)
        return sender

    monkeypatch.setattr(transactions, "Sender", make)
    monkeypatch.setattr(transactions, "_STUCK_S", 1.0)
    one = driver()
    attempt = begun(one, tasks=0)
    if stuck == 1:
        with pytest.raises(KafkaError, match=r"did not return within 1 s.*is tried again"):
            one.task(0, attempt, 0)
    for index in (0, 1):
        one.task(0, attempt, index)
    ends.set()
    assert committed(broker, topic) == expected(1)


def test_a_client_that_does_not_end_holds_no_program_up(
    driver: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, ends = driver(), Event()
    one.start()
    sender = one.sink._sender
    assert sender is not None
    client = sender._sender.client
    sender._sender.client = Stuck(client, "purge", ends)
    monkeypatch.setattr(transactions, "_STUCK_S", 0.1)
    one.sink.close()
    assert "did not end within 0.1 s" in caplog.text
    ends.set()


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """Each producer has a transactional id of its own."""

    def make(settings: Any, explain: Any, **own: Any) -> producer.Sender:
        return producer.Sender(settings, explain, **own, **{"transactional.id": token_hex(8)})

    def without_id(settings: Any, explain: Any, **own: Any) -> producer.Sender:
        del own["transactional.id"]
        return make(settings, explain, **own)

    patch.setattr(transactions, "Sender", without_id)


def no_claim(patch: pytest.MonkeyPatch) -> None:
    def look(self: Any, batch_id: int, attempt: int, index: int) -> bool:
        name = partition_name(self._name, index)
        done = transactions.Tokens(self._settings, self._topic, name, Done).read()
        return done is not None and done.next_id > batch_id

    patch.setattr(SinkBatches, "_claim_one", look)


def no_check_of_the_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition, "_check_attempt", lambda *args: None)


def no_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition, "_prove", lambda *args: 0)


def nothing_is_found_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SinkBatches, "_claim", lambda *args: frozenset())


def lost_tokens_are_made_anew(patch: pytest.MonkeyPatch) -> None:
    opened = SinkBatches.open
    patch.setattr(SinkBatches, "open", lambda self, written: opened(self, ()))


def the_token_comes_first(patch: pytest.MonkeyPatch) -> None:
    def write(to: Any, attempt: int, sender: Any, records: Any) -> int:
        for sent in ((), records):
            sender.begin()
            for record in sent:
                sender.send(record)
            sender.commit(Done(to.batch_id + 1, attempt))
        return 0

    patch.setattr(partition, "_write", write)


def a_task_that_fails_midway(broker: Broker, topic: str, driver: Make) -> None:
    first = driver()
    attempt = begun(first, tasks=0)

    def fail() -> None:
        raise ValueError("midway")

    with pytest.raises(ValueError, match="midway"):
        write_partition(first.sink.destination(0), attempt, 0, while_writing(first, fail))
    for index in (0, 1):
        first.task(0, attempt, index)
    assert committed(broker, topic) == expected(1)


def test_a_task_that_fails_midway(broker: Broker, topic: str, driver: Make) -> None:
    a_task_that_fails_midway(broker, topic, driver)


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        (no_fencing, test_two_tasks_of_a_partition),
        (no_claim, test_a_batch_of_which_nothing_is_written_may_have_others),
        (
            no_check_of_the_attempt,
            test_a_batch_of_which_nothing_is_written_may_have_others,
        ),
        (no_proof, test_other_records_than_before_are_refused),
        (nothing_is_found_done, test_a_batch_in_part_keeps_its_partitions),
        (lost_tokens_are_made_anew, test_tokens_that_are_lost_end_the_program),
        (the_token_comes_first, a_task_that_fails_midway),
    ],
    ids=lambda each: each.__name__,
)
def test_planted_bugs_are_caught(
    broker: Broker,
    topic: str,
    driver: Make,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[..., None],
) -> None:
    bug(monkeypatch)
    more = [monkeypatch] if scenario is test_other_records_than_before_are_refused else []
    with pytest.raises((AssertionError, KafkaError, pytest.fail.Exception)):
        scenario(broker, topic, driver, *more)

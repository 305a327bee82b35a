"""One transactional id, and the token that each of its transactions writes.

The broker admits one producer for a transactional id: ``begin_epoch`` fences all before it, aborts
what they left open, and waits until that is done. The token is the offset of a consumer group,
which a transaction writes together with its records: both are visible, or neither is.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from penstock.bounded_call import returns_in_time
from penstock.errors import KafkaError
from penstock.kafka.client_conf import client_key, resolve
from penstock.kafka.failures import client_made, error_of, kafka_error
from penstock.kafka.idle import IdleClients
from penstock.kafka.sink import failures
from penstock.kafka.sink.producer import RETRIES, Sender, refused_topic
from penstock.kafka.sink.records import Outgoing
from penstock.kafka.sink.tokens import Token, from_metadata, to_metadata

_log = logging.getLogger(__name__)
PATIENCE_S = 60.0
"""For so long a request is repeated while the brokers do not answer, or their log is being read."""
_TIMEOUT_S = 10.0
_STUCK_S = 12.0
"""After so long a request that should have ended after ``_TIMEOUT_S`` is given up, or an end."""
_GLANCE_S = 2.0
"""A commit that is under way takes less; what a task that died left takes until its time limit."""
_PAUSE_S = 0.2
_DEFAULT_LIMIT_MS = 60_000
_KEPT = 8
"""So many idle producers are kept in a process, each with some threads and connections."""
_PRODUCERS = (
    "transaction.timeout.ms", "enable.idempotence", "acks", "linger.ms", "compression.type",
    "compression.codec", "batch.size", "batch.num.messages", "partitioner", "message.timeout.ms",
    "queue.buffering.max.messages", "queue.buffering.max.kbytes", "queue.buffering.max.ms",
)  # fmt: skip
_FENCED = (
    ClientError._FENCED,
    ClientError.PRODUCER_FENCED,
    ClientError.INVALID_PRODUCER_EPOCH,
    ClientError.INVALID_PRODUCER_ID_MAPPING,
)
_PASSING = (
    ClientError._TIMED_OUT,
    ClientError._TRANSPORT,
    ClientError._ALL_BROKERS_DOWN,
    ClientError._WAIT_COORD,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.NOT_COORDINATOR,
    ClientError.REQUEST_TIMED_OUT,
)
_Result = TypeVar("_Result")


class Tokens(Generic[Token]):
    """Reads the token of a group; joins and fences nothing."""

    def __init__(
        self, settings: Mapping[str, Any], topic: str, name: str, kind: type[Token]
    ) -> None:
        self._settings = settings
        self._name = name
        self._kind: type[Token] = kind
        self._place = TopicPartition(topic, 0)
        conf = {k: v for k, v in resolve(settings).items() if k not in _PRODUCERS}
        own = {"group.id": name, "isolation.level": "read_committed", "enable.auto.commit": False}
        with client_made(settings, conf):
            self.consumer = Consumer({**RETRIES, **conf, **own, "log_level": 0})

    def read(self) -> Token | None:
        """Return the token, None if there is none; waits for a transaction that writes it to end.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        (found,) = _patiently(
            lambda: self.consumer.committed([self._place], _TIMEOUT_S),
            lambda error: kafka_error(
                error, "read token of sink", self._settings, group=self._name
            ),
        )
        if found.error is not None:
            raise kafka_error(found.error, "read token of sink", self._settings, group=self._name)
        return self._token(found)

    def glance(self) -> Token | None:
        """Return the token, None if there is none or it cannot be read at once."""
        try:
            (found,) = self.consumer.committed([self._place], _GLANCE_S)
        except KafkaException:
            return None
        return None if found.error is not None else self._token(found)

    def _token(self, found: TopicPartition) -> Token | None:
        if found.offset < 0:
            return None
        return from_metadata(self._kind, found.offset, found.metadata, self._name)

    def close(self) -> None:
        """End."""
        self.consumer.close()


class TransactionalSender(Generic[Token]):
    """Sends records in transactions, each with a token. Not thread-safe.

    Each method raises KafkaError when the brokers refuse or do not answer, or the transaction takes
    too long, and KafkaFencedError when another producer took the name over.

    Args:
        settings: of ``ClientConf.settings``.
        topic: whose partition 0 the token is for; it must exist.
        name: transactional id and group.
        kind: of the token.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, name: str, kind: type[Token]
    ) -> None:
        self.name = name
        self.writer = secrets.token_hex(8)
        """Its own among all producers of this name."""
        self.is_kept = False
        """Whether it is of an earlier task: it may be fenced without a second task now."""
        self._topic = topic
        self._limit_s = transaction_limit_s(settings)
        self._begun_s: float | None = None
        self._is_stuck = False
        self.tokens: Tokens[Token] = Tokens(settings, topic, name, kind)
        own = {"transactional.id": name, "transaction.timeout.ms": round(1000 * self._limit_s)}
        self._sender = Sender(settings, self._explain, **own)

    def begin_epoch(self) -> None:
        """Fence every other producer of this name."""
        client = self._sender.client
        # With a connection it finds its coordinator at once; without one it tries again in 0.5 s.
        error = self._call(lambda: refused_topic(client, self._topic))
        if error is not None:
            raise self._sender.error(error, topic=self._topic)
        # The first answer ends the bootstrap connection; the second comes by the one that follows.
        self._call(lambda: client.list_topics(self._topic, _TIMEOUT_S))
        self._call(lambda: client.init_transactions(_TIMEOUT_S))

    def is_fresh(self) -> bool:
        """Return whether it may be used for another transaction.

        One whose transaction did not end can begin none. One that has lost a connection may wait
        for a group's coordinator that is not there any more (see ``_in_time``): a new one asks
        where it is.
        """
        return self._begun_s is None and not self._sender.lost_connections()

    def begin(self) -> None:
        """Begin a transaction."""
        self._call(self._sender.client.begin_transaction)
        self._begun_s = time.monotonic()

    def send(self, records: Outgoing) -> None:
        """Queue records in the transaction."""
        self._check_time()
        self._sender.send(records)

    def commit(self, token: Token) -> None:
        """Commit the transaction, with its token."""
        self._sender.flush()
        self._check_time()
        client = self._sender.client
        place = TopicPartition(self._topic, 0, token.next_id, to_metadata(token))
        member = self.tokens.consumer.consumer_group_metadata()
        send = partial(client.send_offsets_to_transaction, [place], member, _TIMEOUT_S)
        self._call(lambda: self._in_time(send))
        self._call(lambda: client.commit_transaction(_TIMEOUT_S))
        self._begun_s = None

    def close(self) -> None:
        """End; a transaction that is open is aborted: if the client is stuck, by the next one."""
        if not returns_in_time(self._close, _STUCK_S):
            _log.warning("A Kafka client of %s did not end within %g s", self.name, _STUCK_S)

    def _close(self) -> None:
        self.tokens.close()
        if self._is_stuck:  # it is in use until its request returns
            return
        if self._begun_s is not None:
            with suppress(KafkaException):
                self._sender.client.abort_transaction(_TIMEOUT_S)
        self._sender.close()

    def _call(self, request: Callable[[], _Result]) -> _Result:
        return _patiently(request, lambda e: self._sender.error(e, transaction=self.name))

    def _in_time(self, request: Callable[[], object]) -> None:
        """Make a request whose own time limit does not hold.

        librdkafka forgets it if the group's coordinator leaves the metadata for a moment, as one
        does that starts: https://github.com/confluentinc/librdkafka/issues/5456 and 5511.
        """
        if not returns_in_time(request, _STUCK_S):
            self._is_stuck = True
            raise failures.stuck(self.name, _STUCK_S)

    def _check_time(self) -> None:
        if (error := self._too_long()) is not None:
            raise error

    def _explain(self, error: ClientError) -> KafkaError | None:
        """Return what a refusal means: the brokers fence a producer whose time is up, too."""
        if error.code() not in _FENCED:
            return None
        return self._too_long() or failures.task_fenced(self.name)

    def _too_long(self) -> KafkaError | None:
        taken_s = 0.0 if self._begun_s is None else time.monotonic() - self._begun_s
        if taken_s <= self._limit_s:
            return None
        return failures.too_long(self.name, taken_s, self._limit_s)


def transaction_limit_s(settings: Mapping[str, Any]) -> float:
    """Return for how long a transaction may be open."""
    return float(settings.get("transaction.timeout.ms", _DEFAULT_LIMIT_MS)) / 1000


def _patiently(
    request: Callable[[], _Result], explained: Callable[[ClientError], KafkaError]
) -> _Result:
    """Repeat a request while what fails may pass; raise ``explained`` of it when time is up."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return request()
        except KafkaException as raised:
            error = error_of(raised)
            passes = error.retriable() or error.code() in _PASSING
            if not passes or time.monotonic() > deadline_s:
                raise explained(error) from None
        time.sleep(_PAUSE_S)


_idle = IdleClients[TransactionalSender[Any]](TransactionalSender.close, _KEPT)


@contextmanager
def lend_sender(
    settings: Mapping[str, Any],
    topic: str,
    name: str,
    kind: type[Token],
    is_settled: Callable[[Token], bool],
) -> Iterator[tuple[TransactionalSender[Token], Token | None]]:
    """Lend a producer whose name no other has taken over, and its token.

    One that this process used is used again if it is fresh and the token says that it wrote last: a
    request to the coordinator fewer. One that fails is closed.

    If the token says that there is nothing to write (``is_settled``), the producer has taken no
    name over: a task that is late would fence one that writes the next batch.
    """
    key = repr((client_key(settings), topic, name))
    sender, token = _idle_sender(key)
    may_write = sender is not None
    if sender is None:
        sender = TransactionalSender(settings, topic, name, kind)
        with _closed_on_error(sender):
            token = sender.tokens.glance()
            may_write = token is None or not is_settled(token)
            if may_write:
                sender.begin_epoch()
                token = sender.tokens.read()
    with _closed_on_error(sender):
        yield sender, token
    if may_write:
        sender.is_kept = True
        _idle.keep(key, sender)
    else:
        sender.close()


def _idle_sender(key: str) -> tuple[TransactionalSender[Any] | None, Any]:
    """Return the idle producer and its token, None if it may have been fenced or cannot write."""
    sender = _idle.take(key)
    if sender is None:
        return None, None
    if sender.is_fresh():
        with _closed_on_error(sender):
            token = sender.tokens.read()
        if token is not None and getattr(token, "writer", None) == sender.writer:
            return sender, token
    sender.close()
    return None, None


@contextmanager
def _closed_on_error(sender: TransactionalSender[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sender.close()
        raise

"""The subscribed topics as the driver sees them: partitions, and where these begin and end."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.errors import KafkaError
from penstock.kafka.client_conf import OAUTH, resolve
from penstock.kafka.failures import FINAL, client_made, error_of, failure_of, kafka_error
from penstock.kafka.offsets import TopicIds, partition_name, split_name
from penstock.model import Offsets

_TIMEOUT_S = 3.0
"""The brokers are asked again with the next batch: a longer wait makes batches late."""
_ADMIN = ("client.", "bootstrap.", "metadata.", "security.", "ssl.", "sasl.", "socket.", "broker.")
_ADMIN_TOO = (OAUTH, "enable.ssl.certificate.verification", "debug", "api.version.request")
_NO_ID = "A" * 22
"""Zero, in the form of topic ids: what brokers before 2.8 say."""

_NONE_AFTER = -1
"""The brokers' answer for a time after which a partition has no record."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Subscription = Sequence[str] | re.Pattern[str]
"""Topics by their names, or by a pattern that a whole name matches, without the brokers' own."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the brokers say of the subscribed topics."""

    ids: TopicIds
    """Topic -> its id, which a topic that is created again under its name does not share."""
    begins: Offsets
    """Where the records of each partition begin."""
    ends: Offsets
    """Where the records end that can be read.

    With ``read_committed`` (the default), those before the first open transaction.
    """


class Topics:
    """Asks the brokers for partitions and offsets. Not thread-safe.

    A scan is three requests for topics that are named, whatever their number, and four for a
    pattern. Each of the last two goes to every broker that leads a partition.

    Args:
        settings: of ``ClientConf.settings``, which a client takes (``check_settings``).
        subscription: which topics.
    """

    def __init__(self, settings: Mapping[str, Any], subscription: Subscription) -> None:
        self.settings = settings
        self._subscription = subscription
        committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )
        admin = {
            k: v for k, v in resolve(settings).items() if k.startswith(_ADMIN) or k in _ADMIN_TOO
        }
        self._heard = _Heard()
        self._failed_last = False
        conf: dict[str, Any] = {**admin, "error_cb": self._heard.note, "log_level": 0}
        with client_made(settings, conf):
            self._admin = AdminClient(conf)

    @property
    def named(self) -> Collection[str]:
        """The topics that the subscription names; none for a pattern."""
        return () if isinstance(self._subscription, re.Pattern) else self._subscription

    def scan(self, may_be_gone: Container[str] = ()) -> TopicFacts:
        """Return the topics that exist, with where each partition begins and ends now.

        Args:
            may_be_gone: named topics that are left out if they do not exist.

        Raises:
            KafkaError: the brokers do not answer, or refuse; another topic does not exist.
        """
        ids, partitions = self._describe(self._names(), may_be_gone)
        self._failed_last = False
        asked = [self._ask(partitions, spec) for spec in (_EARLIEST, _LATEST)]
        begins, ends = (self._answers(each, least=0) for each in asked)
        return TopicFacts(ids, begins, ends)

    def ids(self, may_be_gone: Container[str] = ()) -> TopicIds:
        """Return the ids of the topics, as ``TopicFacts.ids``, in one request.

        Raises as ``scan``.
        """
        return self._describe(self._names(), may_be_gone)[0]

    def at_time(self, time_ms: int, facts: TopicFacts) -> Offsets:
        """Return each partition's first offset at or after a time, its end without one.

        A time before 1970 is that of no record; to the brokers, it would be another question.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        partitions = [TopicPartition(*split_name(name)) for name in facts.ends]
        asked = self._ask(partitions, OffsetSpec.for_timestamp(max(0, time_ms)))
        found = self._answers(asked, least=_NONE_AFTER)
        at = {name: found[partition_name(*split_name(name))] for name in facts.ends}
        return {name: at[name] if at[name] >= 0 else end for name, end in facts.ends.items()}

    def written_ends(self, names: Iterable[str]) -> Offsets:
        """Return where all records of partitions end, also those of open transactions.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        of = {name: TopicPartition(*split_name(name)) for name in names}
        asked = self._ask(list(of.values()), _LATEST, IsolationLevel.READ_UNCOMMITTED)
        found = self._answers(asked, least=0)
        return {name: found[partition_name(p.topic, p.partition)] for name, p in of.items()}

    def _names(self) -> list[str]:
        subscription = self._subscription
        if not isinstance(subscription, re.Pattern) and not self._failed_last:
            return sorted(set(subscription))
        try:
            # Any broker answers this, and says which one answers what is asked next: the one that
            # did may be gone.
            found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise self._failed(error_of(error), "list topics") from None
        if isinstance(subscription, re.Pattern):
            return sorted(topic for topic in found if subscription.fullmatch(topic))
        return sorted(set(subscription))

    def _describe(
        self, topics: list[str], may_be_gone: Container[str]
    ) -> tuple[dict[str, str | None], list[TopicPartition]]:
        """Return the topics' ids, and their partitions."""
        ids: dict[str, str | None] = {}
        partitions: list[TopicPartition] = []
        if not topics:
            return ids, partitions
        asked = self._admin.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_S)
        for topic in topics:
            if (error := failure_of(asked[topic])) is not None:
                is_gone = error.code() == ClientError.UNKNOWN_TOPIC_OR_PART
                if is_gone and topic in may_be_gone:
                    continue
                raise self._failed(error, "list topics", topic=topic)
            facts = asked[topic].result()
            # Who commits, and reads its own commits, reads for ever.
            if facts.is_internal and isinstance(self._subscription, re.Pattern):
                continue
            topic_id = str(facts.topic_id)
            ids[topic] = None if topic_id == _NO_ID else topic_id
            numbers = sorted(partition.id for partition in facts.partitions)
            partitions += [TopicPartition(topic, number) for number in numbers]
        return ids, partitions

    def _ask(
        self,
        partitions: Sequence[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel | None = None,
    ) -> dict[TopicPartition, Future[Any]]:
        if not partitions:
            return {}
        asked: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
            dict.fromkeys(partitions, spec),
            isolation_level=self._isolation if isolation is None else isolation,
            request_timeout=_TIMEOUT_S,
        )
        return asked

    def _answers(self, asked: Mapping[TopicPartition, Future[Any]], *, least: int) -> Offsets:
        answers: dict[str, int] = {}
        for of, answer in asked.items():
            error = failure_of(answer)
            # While a broker starts, librdkafka may return -1001 without an error. Taken for an end,
            # it would say that all records of the partition are lost.
            if error is None and (offset := answer.result().offset) < least:
                what = f"the answer has offset {offset}"
                error = ClientError(ClientError.OFFSET_NOT_AVAILABLE, what)
            if error is not None:
                ids = {"topic": of.topic, "partition": of.partition}
                raise self._failed(error, "list offsets", **ids)
            answers[partition_name(of.topic, of.partition)] = offset
        return answers

    def _failed(self, error: ClientError, operation: str, **ids: Any) -> KafkaError:
        """Return the error of a request: why the brokers refuse it, if they do."""
        self._failed_last = True
        self._admin.poll(0)  # hands over what came of connections meanwhile
        heard = self._heard
        cause, heard.refusal = heard.refusal or error, None
        connection, heard.connection = heard.connection, None
        return kafka_error(cause, operation, self.settings, connection, **ids)


class _Heard:
    """What a client told of its connections.

    It does not know the client: one that nobody has ends at once, with its threads and sockets, and
    not when the garbage collector finds a circle.
    """

    def __init__(self) -> None:
        self.refusal: ClientError | None = None
        self.connection: ClientError | None = None

    def note(self, error: ClientError) -> None:
        """Keep an error."""
        if error.code() in FINAL:
            self.refusal = error
        elif error.code() != ClientError._ALL_BROKERS_DOWN:  # which says nothing of its cause
            self.connection = error

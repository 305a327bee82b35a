"""What a Kafka receiver is told: checked where it is given, and read where it is used."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from penstock.errors import ConfigError
from penstock.kafka import COLUMNS, ClientConf
from penstock.kafka.client_conf import is_secret
from penstock.kafka.offsets import TOPIC_NAME

__all__ = ["KafkaOptions", "Starting", "require_client"]

_Ends = Literal["latest", "earliest"]
Starting = _Ends | datetime | Mapping[str, Mapping[int, int]]
"""Where a stream begins: at the topics' end or beginning, at a time, or at these offsets."""

_NOT_POSIX = re.compile(r"\\[A-Za-z0-9]|\(\?|[*+?}][?+]")
_OF_MEMBERS = ("partition.assignment.strategy", "group.instance.id")
"""Settings of a group's members, which a reader that joins no group must not have."""
_FILE = ".file"


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The arguments of KafkaReceiver. Holds paths of secrets, never secrets.

    Raises:
        ConfigError: they cannot work.
    """

    topics: tuple[str, ...]
    conf: dict[str, Any]
    starting: Starting
    columns: tuple[str, ...] | None

    def __post_init__(self) -> None:
        _check(self.topics, "no topic is given", "pass for example ['clicks']")
        for topic in self.topics:
            _check_topic(topic)
        ClientConf({k: v for k, v in self.conf.items() if k not in _OF_MEMBERS})
        _check(
            self.conf.get("group.id"),
            "group.id is missing",
            "name the consumer group of this stream; no other program may use it",
        )
        secret = next(filter(is_secret, self.conf), None)
        _check(
            secret is None,
            f"{secret} holds a secret, and a receiver's settings are stored in files",
            f"give the path of a file with it, where the receiver runs: {secret}{_FILE}",
        )
        _check(
            isinstance(self.starting, (datetime, Mapping)) or self.starting in get_args(_Ends),
            f"starting is {self.starting!r}",
            "pass 'latest', 'earliest', a datetime, or {topic: {0: offset}}",
        )
        _check(
            self.columns is None or (self.columns and set(self.columns) <= COLUMNS.keys()),
            f"columns are {self.columns!r}",
            f"choose among {', '.join(COLUMNS)}, or omit them: then records are the values",
        )

    @property
    def has_files(self) -> bool:
        """Whether there are files of secrets, which only the receiver's host needs to have."""
        return any(name.endswith(_FILE) for name in self.conf)

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What the topics' whole names match; None if all topics are named.

        The client searches names for its patterns, so ``^clicks|orders$`` finds ``my-orders``.
        """
        if not any(topic.startswith("^") for topic in self.topics):
            return None
        each = (f".*(?:{t}).*" if t.startswith("^") else re.escape(t) for t in self.topics)
        return re.compile("|".join(each))

    @property
    def is_incremental(self) -> bool:
        """Whether a rebalance takes and gives some partitions, and leaves the others."""
        if self.conf.get("group.protocol") == "consumer":
            return True
        strategy = self.conf.get("partition.assignment.strategy", "cooperative-sticky")
        return "cooperative" in str(strategy)

    def member_conf(self, receiver: str) -> dict[str, Any]:
        """Return the settings of the group's member that this receiver is."""
        conf = dict(self.conf)
        if conf.get("group.protocol") != "consumer":
            conf.setdefault("partition.assignment.strategy", "cooperative-sticky")
        if instance := conf.get("group.instance.id"):
            conf["group.instance.id"] = f"{instance}-{receiver}"
        return conf


def require_client() -> None:
    """Check that the Kafka client library is installed.

    Raises:
        ConfigError: it is not.
    """
    _check(
        importlib.util.find_spec("confluent_kafka") is not None,
        "the Kafka client library confluent-kafka is not installed",
        "pip install 'penstock[kafka]', also where the executors run",
    )


def _check_topic(topic: str) -> None:
    hint = "names have letters, digits, '.', '_' and '-'; a pattern begins with ^: '^clicks-.*'"
    _check(isinstance(topic, str), f"{topic!r} is no topic", hint)
    if not topic.startswith("^"):
        _check(TOPIC_NAME.fullmatch(topic), f"{topic!r} is no topic", hint)
        return
    _check(
        not _NOT_POSIX.search(topic),
        f"{topic!r} has more than the client's patterns can have",
        "they are POSIX extended regular expressions: for example [0-9] for \\d, (a|b) for (?:a|b)",
    )
    try:
        re.compile(topic)
    except re.error as error:
        raise _wrong(f"{topic!r} is no pattern: {error}", hint) from error


def _check(holds: object, problem: str, hint: str) -> None:
    if not holds:
        raise _wrong(problem, hint)


def _wrong(problem: str, hint: str) -> ConfigError:
    return ConfigError(problem, operation="set up Kafka receiver", hint=hint)

"""What a Kafka receiver is told: checked where it is given, and read where it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

from penstock.errors import ConfigError
from penstock.kafka import COLUMNS, ClientConf
from penstock.kafka.client_conf import OAUTH, is_secret, settings_of
from penstock.kafka.offsets import INTERNAL_TOPICS, TOPIC_NAME
from penstock.model import shown
from penstock.receivers import arguments

__all__ = ["KafkaOptions", "Starting"]

_OPERATION = "set up Kafka receiver"
_check = partial(arguments.check, operation=_OPERATION)

_Ends = Literal["latest", "earliest"]
Starting = _Ends | datetime | Mapping[str, Mapping[int, int]]
"""Where a stream begins: at the topics' end or beginning, at a time, or at these offsets."""

_NOT_POSIX = re.compile(r"\\[A-Za-z0-9]|\(\?|[*+?}][?+]")
_OF_MEMBERS = ("partition.assignment.strategy", "group.instance.id")
"""Settings of a group's members, which a reader that joins no group must not have."""
_FILE = ".file"
_HIDDEN = "topic.blacklist"
"""What the client takes for topics that do not exist."""


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

    @classmethod
    def of(
        cls, topics: Any, conf: Any, starting: Starting, columns: Sequence[str] | None
    ) -> KafkaOptions:
        """Return the options that a program's arguments are."""
        return cls(
            arguments.topics_of(topics, "clicks", _OPERATION),
            settings_of(conf),
            starting,
            None if columns is None else tuple(columns),
        )

    def __post_init__(self) -> None:
        for topic in self.topics:
            _check_topic(topic)
        own = next((topic for topic in self.topics if topic in INTERNAL_TOPICS), None)
        _check(
            own is None or self.pattern is None,
            f"{own} is one of the brokers' own topics, and there is a pattern, which matches none",
            "give it a stream of its own",
        )
        ClientConf({k: v for k, v in self.conf.items() if k not in _OF_MEMBERS})
        _check(
            self.conf.get("group.id"),
            "group.id is missing",
            "name the consumer group of this stream; no other program may use it",
        )
        _check(
            not callable(self.conf.get(OAUTH)),
            f"{OAUTH} is a function, and a receiver's settings are stored in files",
            f"give its import path: {OAUTH}='my_module:token', where the receiver runs",
        )
        secret = next(filter(is_secret, self.conf), None)
        _check(
            secret is None,
            f"{secret} holds a secret, and a receiver's settings are stored in files",
            f"give the path of a file with it, where the receiver runs: {secret}{_FILE}",
        )
        _check(
            isinstance(self.starting, (datetime, Mapping)) or self.starting in get_args(_Ends),
            f"starting is {shown(self.starting)}",
            "pass 'latest', 'earliest', a datetime, or {topic: {0: offset}}",
        )
        _check(
            self.columns is None or (self.columns and set(self.columns) <= COLUMNS.keys()),
            f"columns are {shown(self.columns)}",
            f"choose among {', '.join(COLUMNS)}, or omit them: then records are the values",
        )

    @property
    def has_files(self) -> bool:
        """Whether there is what only the receiver's host needs to have: secrets, a function."""
        return OAUTH in self.conf or any(name.endswith(_FILE) for name in self.conf)

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What the topics' whole names match; None if all topics are named.

        The client searches names for its patterns, so ``^clicks|orders$`` finds ``my-orders``.
        """
        if not any(topic.startswith("^") for topic in self.topics):
            return None
        each = (f".*(?:{t}).*" if t.startswith("^") else re.escape(t) for t in self.topics)
        return re.compile("|".join(each))

    def member_conf(self, receiver: str) -> dict[str, Any]:
        """Return the settings of the group's member that this receiver is."""
        conf = dict(self.conf)
        if self.pattern is not None:
            hidden = [f"^{topic}$" for topic in INTERNAL_TOPICS]
            conf[_HIDDEN] = ",".join(filter(None, [conf.get(_HIDDEN), *hidden]))
        if conf.get("group.protocol") != "consumer":
            conf.setdefault("partition.assignment.strategy", "cooperative-sticky")
        if instance := conf.get("group.instance.id"):
            conf["group.instance.id"] = f"{instance}-{receiver}"
        return conf


def _check_topic(topic: str) -> None:
    hint = "names have letters, digits, '.', '_' and '-'; a pattern begins with ^: '^clicks-.*'"
    if not topic.startswith("^"):
        _check(TOPIC_NAME.fullmatch(topic), f"{shown(topic)} is not a topic", hint)
        return
    _check(
        not _NOT_POSIX.search(topic),
        f"{shown(topic)} has more than the client's patterns can have",
        "they are POSIX extended regular expressions: for example [0-9] for \\d, (a|b) for (?:a|b)",
    )
    try:
        re.compile(topic)
    except re.error as error:
        problem = f"{shown(topic)} is not a pattern: {error}"
        raise ConfigError(problem, operation=_OPERATION, hint=hint) from error

"""The options of ``format("penstock-kafka")``: Spark's Kafka source's, and a few more. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from penstock.conf import parse_duration_ms, parse_positive
from penstock.errors import ConfigError
from penstock.kafka.client_conf import ClientConf
from penstock.kafka.offsets import TOPIC_NAME
from penstock.structured.kafka.jaas import without_jaas
from penstock.structured.options import ADMISSION, Option, one_of, parse_options, text, time_ms

NAME = "penstock-kafka"
_KAFKA = "kafka."
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_INSTEAD = {
    "auto.offset.reset": "give startingOffsets",
    "key.deserializer": "leave it out: keys are bytes, which the query casts",
    "value.deserializer": "leave it out: values are bytes, which the query casts",
    "enable.auto.commit": "leave it out: the query's checkpoint says how far it has read",
    "interceptor.classes": "leave it out: it is Java's",
}
"""Settings that Spark's source refuses as well, and what to do."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in milliseconds since the epoch, of each partition or of all."""

    of_all: int | None = None
    of_each: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


Bound: TypeAlias = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]] | Times
"""Where a read begins or ends: a word, offsets by topic and partition, or times."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The options of one query."""

    settings: Mapping[str, Any] = field(repr=False)
    """Of the client, with secrets: they travel to executors with the reader, and to no file."""
    topics: tuple[str, ...] | re.Pattern[str]
    assigned: Mapping[str, frozenset[int]] | None
    """The only partitions that are read; None for all."""
    starting: Bound | None
    """None: the latest for a stream, the earliest for a batch."""
    ending: Bound
    on_data_loss: Literal["fail", "earliest", "latest"]
    values: Mapping[str, Any]
    """All but those of the client, by name."""
    given: Mapping[str, str]
    """Their texts."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> KafkaOptions:
        """Return the options.

        Raises:
            ConfigError: one is unknown, contradicts another, has no such value, or is missing.
        """
        settings, rest = split_settings(given)
        values = parse_options(NAME, KAFKA_OPTIONS, rest)
        topics, assigned = _subscription(values)
        for name, hint in _INSTEAD.items():
            if name in settings:
                raise _wrong(_KAFKA + name, "cannot be set", hint)
        if "bootstrap.servers" not in settings:
            raise _wrong(
                "kafka.bootstrap.servers",
                "is missing",
                'add .option("kafka.bootstrap.servers", "host:9092")',
            )
        return KafkaOptions(
            ClientConf(without_jaas(settings)).settings(),
            topics,
            assigned,
            _bound("starting", values),
            _bound("ending", values) or "latest",
            _on_data_loss(values),
            values,
            rest,
        )

    def group(self, source: str) -> str | None:
        """Return the group under which offsets are committed for tools; None commits none.

        Args:
            source: what tells it from other sources, whatever topics it reads.
        """
        if (group := self.settings.get("group.id")) is not None:
            return str(group)
        prefix = self.values["groupIdPrefix"]
        return None if prefix is None else f"{prefix}-{source}"


def split_settings(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the client, without ``kafka.``, and the other options."""
    settings = {
        name[len(_KAFKA) :].lower(): value
        for name, value in given.items()
        if name.lower().startswith(_KAFKA)
    }
    rest = {k: v for k, v in given.items() if not k.lower().startswith(_KAFKA)}
    return settings, rest


def _subscription(
    values: Mapping[str, Any],
) -> tuple[tuple[str, ...] | re.Pattern[str], Mapping[str, frozenset[int]] | None]:
    given = [name for name in _SUBSCRIPTIONS if values[name] is not None]
    if len(given) != 1:
        raise ConfigError(
            f"options {', '.join(given)} are all given" if given else "no topics are given",
            operation="read options",
            hint=f"give one of {', '.join(_SUBSCRIPTIONS)}",
        )
    if (assigned := values["assign"]) is not None:
        return tuple(sorted(assigned)), assigned
    return values["subscribe"] or values["subscribePattern"], None


def _bound(which: str, values: Mapping[str, Any]) -> Bound | None:
    by_time, by_times, by_offsets = (
        f"{which}{kind}" for kind in ("Timestamp", "OffsetsByTimestamp", "Offsets")
    )
    # Spark's order of precedence.
    if (time := values[by_time]) is not None:
        return Times(of_all=time)
    if (times := values[by_times]) is not None:
        return Times(of_each=times)
    bound: Bound | None = values[by_offsets]
    return bound


def _on_data_loss(values: Mapping[str, Any]) -> Literal["fail", "earliest", "latest"]:
    fails, chosen = values["failOnDataLoss"], values["onDataLoss"]
    if chosen is None:
        return "earliest" if fails == "false" else "fail"
    if fails is not None and (fails == "true") != (chosen == "fail"):
        raise _wrong("onDataLoss", f"is {chosen!r}, and failOnDataLoss is {fails}", "give one")
    if chosen != "fail" and values["lossLog"] is None:
        raise _wrong(
            "lossLog",
            f"is missing: onDataLoss is {chosen!r}, and what is lost has to be noted somewhere",
            "name a folder of this query's own that executors can write to",
        )
    return chosen  # type: ignore[no-any-return]


def _topics(name: str, value: str) -> tuple[str, ...]:
    topics = tuple(sorted({each.strip() for each in value.split(",")}))
    if not all(map(TOPIC_NAME.fullmatch, topics)):
        raise _wrong(name, f"is {value!r}", "give topics' names, with commas between them")
    return topics


def _pattern(name: str, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise _wrong(name, f"is {value!r}", f"as a regular expression: {error}") from error


def _assigned(name: str, value: str) -> Any:
    return _json(
        name,
        value,
        lambda found: {_topic(t): frozenset(map(_number, ps)) for t, ps in found.items() if ps},
        '{"clicks": [0, 1]}',
    )


def _offsets(*words: str) -> Callable[[str, str], Any]:
    def parse(name: str, value: str) -> Any:
        if (word := value.strip().lower()) in words:
            return word
        example = '{"clicks": {"0": 120, "1": -2}}'
        wanted = " or ".join([*words, example])
        return _json(name, value, lambda found: _by_partition(found, -2), wanted)

    return parse


def _times(name: str, value: str) -> Any:
    return _json(
        name, value, lambda found: _by_partition(found, 0), '{"clicks": {"0": 1764000000}}'
    )


def _json(name: str, value: str, parse: Callable[[Any], Any], wanted: str) -> Any:
    try:
        if found := parse(json.loads(value)):
            return found
    except (ValueError, TypeError, AttributeError):
        pass
    raise _wrong(name, f"is {value!r}", f"give {wanted}")


def _by_partition(found: Any, least: int) -> dict[str, dict[int, int]]:
    return {
        _topic(topic): {int(partition): _number(n, least) for partition, n in of_each.items()}
        for topic, of_each in found.items()
    }


def _topic(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name):
        raise ValueError(name)
    return name


def _number(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


def _wrong(name: str, what: str, hint: str) -> ConfigError:
    return ConfigError(
        f"option {name} {what}", operation="read options", ids={"option": name}, hint=hint
    )


KAFKA_OPTIONS = (
    Option("subscribe", _topics),
    Option("subscribePattern", _pattern),
    Option("assign", _assigned),
    Option("startingOffsets", _offsets("earliest", "latest")),
    Option("startingTimestamp", time_ms),
    Option("startingOffsetsByTimestamp", _times),
    Option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error"),
    Option("endingOffsets", _offsets("latest"), only="batch"),
    Option("endingTimestamp", time_ms, only="batch"),
    Option("endingOffsetsByTimestamp", _times, only="batch"),
    Option("failOnDataLoss", one_of("true", "false")),
    Option("onDataLoss", one_of("fail", "earliest", "latest")),
    Option("lossLog", text),
    Option("minOffsetsPerTrigger", parse_positive, only="stream"),
    Option("maxTriggerDelay", parse_duration_ms, 15 * 60_000, only="stream"),
    Option("minPartitions", parse_positive, 1),
    Option("includeHeaders", one_of("true", "false"), "false"),
    Option("groupIdPrefix", text),
    *ADMISSION,
    # Of Spark's own client, without a meaning here: so its options can stay as they are.
    Option("kafkaConsumer.pollTimeoutMs", text),
    Option("fetchOffset.numRetries", text),
    Option("fetchOffset.retryIntervalMs", text),
)

"""What a source's next batch takes of its topics. Asks the brokers; reads no records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.batched.checkpoints import Checkpoints
from penstock.errors import ConfigError, KafkaDataLossError, KafkaError
from penstock.kafka import ClientConf, KafkaRange
from penstock.kafka.advance import advance
from penstock.kafka.client_conf import settings_of
from penstock.kafka.cut_off import settle
from penstock.kafka.offsets import partition_name, split_name
from penstock.kafka.reader import check_settings
from penstock.kafka.topics import Topics
from penstock.model import Offsets, shown
from penstock.patience import Patience

_EARLIEST = ("earliest", "smallest", "beginning")
_LATEST = ("latest", "largest", "end")
_RESET = "auto.offset.reset"
_COMMIT = "enable.auto.commit"


@dataclass(frozen=True)
class Source:
    """The topics of a ``from_kafka_batched``, and how they are read."""

    topics: tuple[str, ...]
    settings: Mapping[str, Any]
    begins_at_end: bool
    poll_interval_s: float
    max_batch_size: int
    npartitions: int | None
    keys: bool

    @classmethod
    def of(
        cls,
        topics: str | Sequence[str],
        consumer_conf: Mapping[str, Any],
        *,
        poll_interval: str | float = "1s",
        max_batch_size: int = 10_000,
        npartitions: int | None = None,
        keys: bool = False,
    ) -> Source:
        """Return the source of checked arguments.

        Raises:
            ConfigError: an argument or a setting is wrong.
        """
        topics = [topics] if isinstance(topics, str) else topics
        are_names = all(isinstance(topic, str) for topic in topics)
        if not topics or not are_names or len(set(topics)) < len(topics):
            raise _wrong(f"topics {shown(list(topics))}", "name each topic once")
        if not isinstance(max_batch_size, int) or max_batch_size < 1:
            raise _wrong(f"max_batch_size={shown(max_batch_size)}", "take 1 record or more a batch")
        if npartitions is not None and (not isinstance(npartitions, int) or npartitions < 1):
            raise _wrong(
                f"npartitions={shown(npartitions)}", "read 1 partition or more, or leave it out"
            )
        settings = settings_of(consumer_conf)
        if str(settings.pop(_COMMIT, False)).lower() != "false":
            warnings.warn(
                f"{_COMMIT} was on and is now False: offsets of records that are not processed yet "
                "would be committed. Leave it out",
                stacklevel=3,
            )
        reset = settings.pop(_RESET, "latest")
        if reset not in (*_EARLIEST, *_LATEST):
            raise _wrong(f"{_RESET}={shown(reset)}", "give 'earliest' or 'latest'")
        conf = ClientConf(settings)
        check_settings(conf.settings())
        return cls(
            tuple(topics),
            {**conf.settings(), _COMMIT: False},
            reset in _LATEST,
            _seconds(poll_interval),
            max_batch_size,
            npartitions,
            keys,
        )


class Position:
    """How far a source's topics were planned.

    Args:
        source: the source.
        checkpoints: the ends by partition of topics that have checkpoints.

    Raises:
        KafkaError: the brokers do not answer, or a topic is unknown.
    """

    def __init__(self, source: Source, checkpoints: Mapping[str, Mapping[int, int]]) -> None:
        self._source = source
        self._brokers = Topics(source.settings, source.topics)
        self._patience = Patience("No batch is planned until the brokers answer")
        begins, ends = self._begins_and_ends()
        self._planned = {
            partition_name(topic, partition): end
            for topic in source.topics
            for partition, end in checkpoints.get(topic, {}).items()
        }
        self.new_topics: dict[str, dict[int, int]] = {
            topic: {} for topic in source.topics if topic not in checkpoints
        }
        """Where topics without checkpoints begin, by partition."""
        self.new_partitions: dict[str, dict[int, int]] = {}
        """Where partitions begin, by topic, that no checkpoint had at the start."""
        for name, start in (ends if source.begins_at_end else begins).items():
            topic, partition = split_name(name)
            if topic in self.new_topics:
                self.new_topics[topic][partition] = self._planned[name] = start

    def plan(self) -> tuple[list[KafkaRange], bool]:
        """Return the ranges of the next batch, and whether it leaves records that wait already.

        There are none while the brokers do not answer.

        Raises:
            KafkaError: the brokers have not answered for a minute.
            KafkaDataLossError: records that no batch has read are gone.
        """
        try:
            planned = self._plan()
        except KafkaDataLossError:
            raise
        except KafkaError as error:
            self._patience.bear(error)
            return [], False
        self._patience.recovered()
        return planned

    def _plan(self) -> tuple[list[KafkaRange], bool]:
        begins, ends = self._begins_and_ends()
        start = {**begins, **self._planned}
        for topic, partition in map(split_name, start.keys() - self._planned.keys()):
            begin = begins[partition_name(topic, partition)]
            self.new_partitions.setdefault(topic, {})[partition] = begin
        try:
            wanted = advance(start, begins, settle(self._brokers, start, ends)).ends
        except KafkaDataLossError as error:
            raise KafkaDataLossError(
                error.message, operation="plan batch", ids=error.ids, hint=GO_ON
            ) from None
        most = self._source.max_batch_size
        ranges = [
            KafkaRange(*split_name(name), first, min(wanted[name], first + most))
            for name, first in start.items()
            if wanted[name] > first
        ]
        self._planned = {
            **start,
            **{partition_name(r.topic, r.partition): r.end_offset for r in ranges},
        }
        return sorted(ranges), any(wanted[name] > end for name, end in self._planned.items())

    def _begins_and_ends(self) -> tuple[Offsets, Offsets]:
        facts = self._brokers.scan()
        return dict(self._wanted(facts.begins)), dict(self._wanted(facts.ends))

    def _wanted(self, offsets: Offsets) -> Iterator[tuple[str, int]]:
        most = self._source.npartitions
        for name, offset in offsets.items():
            if most is None or split_name(name)[1] < most:
                yield name, offset


def open_positions(
    sources: Mapping[int, Source], checkpoints: Checkpoints | None
) -> dict[int, Position]:
    """Become the program of a checkpoint path, if there is one; return where sources continue.

    Raises: as ``Position`` and ``Checkpoints.open``.
    """
    if checkpoints is None:
        return {number: Position(source, {}) for number, source in sources.items()}
    ends = checkpoints.open(topic for source in sources.values() for topic in source.topics)
    try:
        positions = {number: Position(source, ends) for number, source in sources.items()}
        for position in positions.values():
            for topic, begins in position.new_topics.items():
                checkpoints.begin_topic(topic, begins)
    except BaseException:
        checkpoints.close()
        raise
    return positions


GO_ON = (
    "give topics a longer retention; to continue, write the topic's next checkpoint by hand "
    "(<topic>/<N>.txt), with the last offset of each partition that counts as done"
)


def _seconds(interval: str | float) -> float:
    import pandas as pd

    try:
        seconds = float(
            pd.Timedelta(interval).total_seconds() if isinstance(interval, str) else interval
        )
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds >= 0:
        raise _wrong(f"poll_interval={shown(interval)}", "give a time such as '0.5s', or seconds")
    return seconds


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="from_kafka_batched", hint=hint)

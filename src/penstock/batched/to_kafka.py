"""The sink that writes to a topic."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from penstock.batched.operations import Element, Operation
from penstock.errors import ConfigError
from penstock.kafka.client_conf import settings_of
from penstock.kafka.sink import (
    Encoder,
    check_sink_settings,
    check_sink_topic,
    send_partition,
    sink_conf,
)
from penstock.model import shown
from penstock.storage import open_storage


def sink_arguments(
    topic: Any, producer_conf: Any, checkpoint_path: Any, own_paths: Collection[str]
) -> tuple[str, Mapping[str, Any]]:
    """Return topic and conf of ``to_kafka``, whose arguments may have the order of the proposal.

    Args:
        topic: where elements go.
        producer_conf: librdkafka's settings.
        checkpoint_path: None, or a path that the stream has.
        own_paths: the checkpoint paths of the stream's sources.

    Raises:
        ConfigError: the topic is not a name, the conf is not a mapping, or it is another path.
    """
    if isinstance(checkpoint_path, Mapping):
        topic, producer_conf, checkpoint_path = producer_conf, checkpoint_path, topic
    if not isinstance(topic, str):
        raise _wrong(f"topic={shown(topic)}", "give the name of a topic")
    settings = settings_of(producer_conf)
    if checkpoint_path is not None:
        urls = [open_storage(each).url for each in own_paths]
        if open_storage(checkpoint_path).url not in urls:
            raise _wrong(
                f"checkpoint_path={os.fspath(checkpoint_path)!r}, where from_kafka_batched has "
                f"{', '.join(map(repr, own_paths)) or None}",
                "leave it out: the path travels with the stream",
            )
    return topic, settings


class ToKafka(Operation):
    """Elements to a topic, written when a part of a batch has no more of them.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, topic: str, producer_conf: Mapping[str, Any]) -> None:
        self._topic = topic
        self._settings = sink_conf(producer_conf).settings()
        check_sink_settings(self._settings, exactly_once=False)

    def check_topic(self) -> None:
        """Raise KafkaError if the topic does not exist."""
        check_sink_topic(self._settings, self._topic)

    def new_state(self) -> Any:
        """See Operation."""
        return []

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state.append(element.value)
        return (element,)

    def finish(self, state: Any) -> Any:
        """Write, and wait until all is delivered; see Operation."""
        send_partition(self._settings, Encoder(self._topic)(state))


def _wrong(argument: str, hint: str) -> ConfigError:
    return ConfigError(f"to_kafka({argument}) is not possible", operation="build stream", hint=hint)

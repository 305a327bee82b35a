"""The sink that writes to a topic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.exactly_once import ExactlyOnce, Output
from penstock.batched.graph import Graph
from penstock.batched.operations import Element, Operation, Place
from penstock.errors import ConfigError
from penstock.kafka.client_conf import settings_of
from penstock.kafka.sink import (
    Encoder,
    check_sink_settings,
    check_sink_topic,
    send_partition,
    sink_conf,
    write_partition,
)
from penstock.model import shown

__all__ = ["Delivery", "ToKafka", "exactly_once_sinks", "in_order"]

Delivery = Literal["at_least_once", "exactly_once"]


def in_order(
    topic: Any, producer_conf: Any, checkpoint_path: Any
) -> tuple[str, Mapping[str, Any], str | os.PathLike[str] | None]:
    """Return the arguments of ``to_kafka``, which may be given in the order of the proposal.

    Raises:
        ConfigError: the topic is not a name, or the conf is not a mapping.
    """
    if isinstance(checkpoint_path, Mapping):
        topic, producer_conf, checkpoint_path = producer_conf, checkpoint_path, topic
    if not isinstance(topic, str):
        raise _refusal(f"to_kafka(topic={shown(topic)})", "give the name of a topic")
    return topic, settings_of(producer_conf), checkpoint_path


class ToKafka(Operation):
    """Elements to a topic, written when a part of a batch has no more of them.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self, topic: str, producer_conf: Mapping[str, Any], delivery: Delivery, name: str
    ) -> None:
        self.is_exactly_once = delivery == "exactly_once"
        self.output = Output(topic, sink_conf(producer_conf).settings(), name)
        check_sink_settings(self.output.settings, exactly_once=self.is_exactly_once)

    def check_topic(self) -> None:
        """Raise KafkaError if the topic does not exist."""
        check_sink_topic(self.output.settings, self.output.topic)

    def new_state(self) -> Any:
        """See Operation."""
        return []

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state.append(element.value)
        return (element,)

    def finish(self, state: Any, sink: Any) -> Any:
        """Write, and wait until all is delivered; see Operation."""
        outgoing = Encoder(self.output.topic)(state)
        if sink is None:
            send_partition(self.output.settings, outgoing)
        else:
            destination, attempt, index, is_done = sink
            write_partition(destination, attempt, index, outgoing, is_done=is_done)


def exactly_once_sinks(graph: Graph, checkpoints: Checkpoints | None) -> ExactlyOnce | None:
    """Return the exactly-once sinks of a program, None if it has none.

    Raises:
        ConfigError: the program does not do what it does again after a restart.
    """
    sinks = [(n, each.operation) for n, each in enumerate(graph.nodes)]
    outputs = {n: s.output for n, s in sinks if isinstance(s, ToKafka) and s.is_exactly_once}
    if not outputs:
        return None
    if checkpoints is None:
        raise _refusal("delivery='exactly_once' without checkpoints", "give a checkpoint_path")
    if any(node.place is not Place.RANGES for node in graph.nodes):
        raise _refusal(
            "delivery='exactly_once' with an operation that takes elements of several ranges",
            "leave out accumulate, partition, zip, combine_latest and gather, or take "
            "'at_least_once'",
        )
    if len({output.name for output in outputs.values()}) < len(outputs):
        raise _refusal("two exactly-once sinks of one name", "give each a name of its own (name=)")
    return ExactlyOnce(outputs, checkpoints)


def _refusal(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="build stream", hint=hint)

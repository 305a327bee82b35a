"""The sink that writes to a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from penstock.batched.exactly_once import Output
from penstock.batched.operations import Element, Operation
from penstock.kafka.sink import (
    Encoder,
    check_sink_settings,
    check_sink_topic,
    send_partition,
    sink_conf,
    write_partition,
)

__all__ = ["Delivery", "ToKafka"]

Delivery = Literal["at_least_once", "exactly_once"]


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
            destination, attempt, index = sink
            write_partition(destination, attempt, index, outgoing)

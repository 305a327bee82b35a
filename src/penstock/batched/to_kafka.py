"""The sink that writes to a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer

from penstock.batched.operations import Element, Operation
from penstock.kafka import ClientConf

__all__ = ["ToKafka"]


class ToKafka(Operation):
    """Elements to a topic; they are there when the batch's part is finished."""

    def __init__(self, topic: str, producer_conf: Mapping[str, Any]) -> None:
        self._topic = topic
        self._settings = ClientConf(producer_conf).settings()

    def new_state(self) -> Any:
        """Connect; see Operation."""
        return Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state.produce(self._topic, element.value)
        state.poll(0)
        return (element,)

    def finish(self, state: Any) -> Any:
        """Wait until all are delivered."""
        state.flush()

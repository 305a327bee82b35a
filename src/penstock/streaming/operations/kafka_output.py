"""The output that writes each batch to a topic. ``penstock.kafka.sink`` has the protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from pyspark import RDD

from penstock.errors import ConfigError
from penstock.exactly_once import Run
from penstock.kafka.sink import (
    Encoder,
    SinkBatches,
    check_sink_settings,
    check_sink_topic,
    sink_conf,
)
from penstock.kafka.spark import Delivery, check_delivery, write_rdd
from penstock.model import OutputBatch, shown
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.batch import Batch
from penstock.streaming.operations.outputs import OutputOperation


class KafkaOutput(OutputOperation):
    """Writes each batch's records to a topic; see ``DStream.to_kafka``."""

    kind = "to_kafka"

    def __init__(
        self,
        parent: BaseDStream,
        topic: str,
        conf: Mapping[str, Any],
        *,
        key: Callable[[Any], Any] | None,
        value: Callable[[Any], Any] | None,
        headers: Callable[[Any], Iterable[tuple[str, Any]] | None] | None,
        delivery: Delivery,
        name: str | None,
    ) -> None:
        check_delivery(delivery)
        _check_functions(key=key, value=value, headers=headers)
        if not isinstance(topic, str) or not topic:
            raise _wrong(f"topic {shown(topic)}", "give a topic's name")
        self.exactly_once = delivery == "exactly_once"
        self._conf = sink_conf(conf)
        check_sink_settings(self._conf.settings(), exactly_once=self.exactly_once)
        self._encoder = Encoder(topic, key, value, headers)
        self._sink: SinkBatches | None = None
        super().__init__(parent, self._encoder, name)

    def open(self, location_id: str, again: Collection[int], run: Run) -> None:
        """Check the topic, and fence earlier drivers of the sink; see ``SinkBatches.open``."""
        super().open(location_id, again, run)
        settings = self._conf.settings()
        check_sink_topic(settings, self._encoder.topic)
        if self.exactly_once:
            self._sink = SinkBatches(settings, self._encoder.topic, location_id, self.name)
            self._sink.open(again)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        if self._sink is not None:
            self._sink.close()

    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the writing of the batch; None if the stream has no RDD at its time."""
        rdd = self.parent.get_or_compute(batch.time_ms)
        return None if rdd is None else partial(self._write, rdd, self.token(batch))

    def _write(self, rdd: RDD[Any], output: OutputBatch) -> None:
        if rdd.getNumPartitions() or output.may_be_written:  # it was not empty when it was written
            write_rdd(rdd, output, self._encoder, self._conf.settings(), self._sink)
        elif self._sink is not None:
            self._sink.keep(output.batch_id, output)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sink": None}


def _check_functions(**functions: Any) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise _wrong(
                f"{name}={shown(function)}", f"give a function of a record: {name}=lambda r: ..."
            )


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="to_kafka", hint=hint)

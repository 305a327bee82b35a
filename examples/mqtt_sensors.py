"""Follows sensors over MQTT, and says when one is too hot, is well again, or falls silent.

    pip install 'penstock-spark[mqtt]' && sudo apt-get install mosquitto mosquitto-clients
    mosquitto -p 1883 &
    python examples/mqtt_sensors.py 127.0.0.1 1883 /tmp/sensors

    mosquitto_pub -q 1 -t plant/boiler/temperature -m 95.5

A message of QoS 1 or 2 is acknowledged when it is on disk. The broker keeps those that come while
this program is stopped, because its session is persistent.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext

HOT = 90.0
Sensor = tuple[bool, int, list[str]]
"""Whether it is hot, the batches since its last reading, and what is new about it."""


def reading(message: dict[str, Any]) -> tuple[str, float]:
    """Return the sensor's name and its temperature."""
    return message["topic"].split("/")[1], float(message["payload"])


def follow(readings: list[float], sensor: Sensor | None, silent_after: int) -> Sensor | None:
    """Return a sensor after a batch's readings; None forgets it, when it was silent for so long."""
    was_hot, idle, _ = sensor or (False, 0, [])
    if not readings:
        if idle == silent_after:
            return None
        return was_hot, idle + 1, ["is silent"] if idle + 1 == silent_after else []
    news = []
    for value in readings:
        if (value >= HOT) != was_hot:
            was_hot = not was_hot
            news.append(f"is too hot: {value}" if was_hot else f"is well again: {value}")
    return was_hot, 0, news


def main(host: str, port: str, checkpoint: str, silent_after: str = "60") -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("mqtt sensors")
            # Spark's progress bar would break the lines that pprint prints.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        # The stream's name is part of the session's name at the broker: do not change it.
        messages = ssc.mqttStream(host, int(port), ["plant/+/temperature"], name="plant")
        update = partial(follow, silent_after=int(silent_after))
        # Each batch passes over all sensors. For many of them, or for time-outs in event time, use
        # transformWithState of a Structured query over the same journal.
        sensors = messages.map(reading).updateStateByKey(update, name="sensors")
        sensors.flatMapValues(lambda sensor: sensor[2]).pprint()
        return ssc

    ssc = StreamingContext.getOrCreate(checkpoint, create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

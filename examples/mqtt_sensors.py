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
from typing import Any

from pyspark.sql import SparkSession

from penstock.streaming import State, StreamingContext

HOT = 90.0


def reading(message: dict[str, Any]) -> tuple[str, float]:
    """Return the sensor's name and its temperature."""
    return message["topic"].split("/")[1], float(message["payload"])


def follow(sensor: str, value: float | None, state: State[bool]) -> tuple[str, str] | None:
    """Return what changed about a sensor, None if nothing did; its state is whether it is hot."""
    if state.isTimingOut():  # no reading for as long as the timeout: the value is None
        return sensor, "is silent"
    is_hot = value >= HOT
    was_hot = state.exists() and state.get()
    state.update(is_hot)  # also when it is the same: a reading restarts the timeout
    if is_hot == was_hot:
        return None
    return sensor, f"is too hot: {value}" if is_hot else f"is well again: {value}"


def main(host: str, port: str, checkpoint: str, silent_after_s: str = "60") -> None:
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
        # The changed keys of each batch are durable before the batch is done, so a batch that runs
        # again finds its own result and the function sees no reading twice.
        readings = messages.map(reading)
        readings.mapWithState(follow, timeout=float(silent_after_s), name="sensors").pprint()
        return ssc

    ssc = StreamingContext.getOrCreate(checkpoint, create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

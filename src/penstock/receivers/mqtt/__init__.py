"""Messages of an MQTT broker, acknowledged when they are durable."""

from penstock.receivers.mqtt.options import MESSAGES_SCHEMA
from penstock.receivers.mqtt.receiver import MqttReceiver

__all__ = ["MESSAGES_SCHEMA", "MqttReceiver"]

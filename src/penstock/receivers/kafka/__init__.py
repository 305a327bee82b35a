"""Kafka topics read by a consumer group, into the journal: each record exactly once."""

from penstock.receivers.kafka.options import Starting
from penstock.receivers.kafka.receiver import KafkaReceiver

__all__ = ["KafkaReceiver", "Starting"]

"""Kafka: a topic's offsets are the log, so its records are read by ranges, with no second copy.

``topics`` plans on the driver, ``reader`` reads on executors; ``offsets`` are the plain values
between them. Needs the extra ``kafka`` (confluent-kafka).
"""

from penstock.kafka.client_conf import ClientConf
from penstock.kafka.offsets import KafkaRange, TopicOffsets
from penstock.kafka.records import COLUMNS, KafkaRecord

__all__ = ["COLUMNS", "ClientConf", "KafkaRange", "KafkaRecord", "TopicOffsets"]

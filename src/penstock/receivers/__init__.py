"""Push sources: the contract of a receiver, what runs it, and one module per built-in source."""

from penstock.receivers.control import Order, Status, read_order, read_status, write_order
from penstock.receivers.mqtt import MqttReceiver
from penstock.receivers.receiver import Position, Receiver, ReceiverHost, ReceiverIdentity
from penstock.receivers.socket import FramedSocketReceiver, SocketReceiver
from penstock.receivers.supervisor import (
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    backoff_ms,
    run_receiver,
)
from penstock.receivers.tail import TailReceiver

__all__ = [
    "FramedSocketReceiver",
    "MqttReceiver",
    "Order",
    "Position",
    "Receiver",
    "ReceiverHost",
    "ReceiverIdentity",
    "ReceiverSettings",
    "ReceiverSupervisor",
    "ReceiverTask",
    "SocketReceiver",
    "Status",
    "TailReceiver",
    "backoff_ms",
    "read_order",
    "read_status",
    "run_receiver",
    "write_order",
]

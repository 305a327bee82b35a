"""Push sources: the contract of a receiver, what runs it, and one module per built-in source."""

from penstock.receivers.control import Order, Status, read_order, read_status, write_order
from penstock.receivers.http import HttpReceiver
from penstock.receivers.own_files import OwnFiles
from penstock.receivers.receiver import Position, Receiver, ReceiverHost
from penstock.receivers.socket import SocketReceiver
from penstock.receivers.supervisor import (
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    backoff_ms,
    run_receiver,
)
from penstock.receivers.tail import TailReceiver

__all__ = [
    "HttpReceiver",
    "Order",
    "OwnFiles",
    "Position",
    "Receiver",
    "ReceiverHost",
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

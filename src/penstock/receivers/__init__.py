"""Push sources: the contract of a receiver, its supervisor, and one module per built-in source."""

from penstock.receivers.backoff import backoff_ms
from penstock.receivers.control import (
    Command,
    Status,
    claim_run,
    give_command,
    newest_run,
    read_command,
    read_status,
)
from penstock.receivers.http import HttpReceiver
from penstock.receivers.mqtt import MqttReceiver
from penstock.receivers.own_files import OwnFiles
from penstock.receivers.receiver import Position, Receiver, ReceiverHost, ReceiverIdentity
from penstock.receivers.socket import FramedSocketReceiver, SocketReceiver
from penstock.receivers.supervisor import (
    End,
    ReceiverSupervisor,
    run_receiver,
    uncaught_errors_to,
)
from penstock.receivers.tail import TailReceiver
from penstock.receivers.task import (
    ReceiverSettings,
    ReceiverTask,
    poll_interval_ms,
    receiver_bounds,
)
from penstock.receivers.threaded import ThreadedReceiver

__all__ = [
    "Command",
    "End",
    "FramedSocketReceiver",
    "HttpReceiver",
    "MqttReceiver",
    "OwnFiles",
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
    "ThreadedReceiver",
    "backoff_ms",
    "claim_run",
    "give_command",
    "newest_run",
    "poll_interval_ms",
    "read_command",
    "read_status",
    "receiver_bounds",
    "run_receiver",
    "uncaught_errors_to",
]

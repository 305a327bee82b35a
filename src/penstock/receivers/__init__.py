"""Push sources: the contract of a receiver, and one module per built-in source."""

from penstock.receivers.receiver import Position, Receiver, ReceiverHost
from penstock.receivers.socket import SocketReceiver
from penstock.receivers.tail import TailReceiver

__all__ = ["Position", "Receiver", "ReceiverHost", "SocketReceiver", "TailReceiver"]

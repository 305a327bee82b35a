"""Push sources: the contract of a receiver, and one module per built-in source."""

from penstock.receivers.receiver import Position, Receiver, ReceiverHost
from penstock.receivers.socket import SocketReceiver

__all__ = ["Position", "Receiver", "ReceiverHost", "SocketReceiver"]

"""The errors that a broker may answer with, by name, with their fixes."""

from __future__ import annotations

import socket
import ssl

from penstock.errors import ReceiverError

_HINTS = {
    "Bad user name or password": "check username and the content of password_file",
    "Banned": "the broker bans this client: ask its operator",
    "Client identifier not valid": "pass another client_id: the broker refuses this one",
    "Keep alive timeout": "this process was stopped or starved; it reconnects",
    "Not authorized": "check username and password_file, and the broker's access rules",
    "Packet too large": "the broker refuses packets of this size: raise its limit, or use fewer "
    "and shorter topic filters",
    "QoS not supported": "the broker delivers with a lower QoS only: raise its max_qos",
    "Quota exceeded": "the broker's limit of sessions or subscriptions is reached",
    "Receive maximum exceeded": "a bug in the broker or in penstock: please report it",
    "Server busy": "the broker is overloaded; the receiver retries",
    "Server shutting down": "the broker restarts; the receiver retries",
    "Session taken over": "another client has the same client id: give each program its own "
    "client_id. "
    "After a failover it is the receiver's earlier attempt, which ends",
    "Shared subscription not supported": "omit share_group, or use another broker",
    "Topic filter invalid": "the broker refuses this topic filter",
    "Unsupported protocol version": "pass another version: '3.1.1' or '5'",
    "Wildcard subscription not supported": "name each topic: the broker does not support wildcards",
}
_LOST: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "check host: this machine cannot resolve the name"),
    (ssl.SSLError, "check that this is a port with TLS, and that tls_ca is the broker's CA"),
    (ConnectionRefusedError, "check host and port, and that the broker runs"),
)
_CLOSED = (
    "check that the broker runs, that the port is one with TLS just if TLS is set, that no other "
    "client has the same id (it would take the session over), and the broker's log"
)
_OTHER = "see the broker's log; the receiver retries"


def lost(failure: Exception | None) -> ReceiverError:
    """Return the error for a connection that failed, or that the broker just closed."""
    hints = (hint for kind, hint in _LOST if isinstance(failure, kind))
    error = ReceiverError(
        "the broker closed the connection" if failure is None else "no connection",
        operation="receive from MQTT broker",
        hint=next(hints, _CLOSED),
    )
    error.__cause__ = failure
    return error


def refused(what: str, reason: str) -> ReceiverError:
    """Return the error for a broker's answer.

    Args:
        what: what was refused or ended, to follow "the broker".
        reason: the reason code's name, as in MQTT 5, section 2.4.
    """
    return ReceiverError(
        f"the broker {what}: {reason}",
        operation="receive from MQTT broker",
        hint=_HINTS.get(reason, _OTHER),
    )

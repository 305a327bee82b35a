"""A built-in source's arguments stand in its class, its stream and its command, typed in each.

So an argument that is added, or a default that changes, must do so in all three; what one of them
leaves out, or calls otherwise, is named here with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import pytest

from penstock.cli.ingest import commands
from penstock.cli.ingest.options import with_ingest_options
from penstock.receivers import (
    FramedSocketReceiver,
    HttpReceiver,
    MqttReceiver,
    SocketReceiver,
    TailReceiver,
)
from penstock.streaming import StreamingContext

COMMON = frozenset(inspect.signature(with_ingest_options(lambda *_: None)(lambda: None)).parameters)
"""Options of every command: where to receive into, and what bounds that."""


@dataclass(frozen=True)
class Way:
    """How one of a source's ways to be used differs from the receiver's class."""

    function: Callable[..., Any]
    leaves_out: frozenset[str] = frozenset()
    calls: dict[str, str] = field(default_factory=dict)
    """The class's names for what is called otherwise here."""
    adds: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    """What has a default in the class, and none here."""

    def arguments(self) -> dict[str, Any]:
        """Return the defaults of all that the class has, too, by the class's names."""
        parameters = inspect.signature(self.function).parameters
        return {
            self.calls.get(name, name): each.default
            for name, each in parameters.items()
            if name not in self.adds | {"self"}
        }


def stream(function: Callable[..., Any], *adds: str, **options: Any) -> Way:
    return Way(function, adds=frozenset({"name", *adds}), **options)


def command(function: Callable[..., Any], *adds: str, **options: Any) -> Way:
    return Way(function, adds=COMMON | {*adds}, **options)


# What is rarely changed is left to the class: `receiverStream` takes a receiver made with it.
FINE_TUNING = {
    "http": frozenset(
        {
            *("max_body_bytes", "max_expanded_bytes", "idempotency_window_ms"),
            *("finer_times", "content_types"),
        }
    ),
    "socket": frozenset({"connect_timeout_ms", "max_line_bytes"}),
    "frames": frozenset({"connect_timeout_ms"}),
    "tail": frozenset({"poll_interval_ms", "rotate_wait_ms", "max_line_bytes"}),
}

WAYS: dict[str, tuple[type, Way]] = {
    "httpStream": (
        HttpReceiver,
        stream(StreamingContext.httpStream, leaves_out=FINE_TUNING["http"]),
    ),
    "ingest http": (
        HttpReceiver,
        command(
            commands.http,
            calls={"content_type": "content_types"},
            leaves_out=frozenset({"idempotency_window_ms"}),
        ),
    ),
    "mqttStream": (MqttReceiver, stream(StreamingContext.mqttStream, "receivers")),
    "ingest mqtt": (MqttReceiver, command(commands.mqtt, requires=frozenset({"topics"}))),
    "socketTextStream": (
        SocketReceiver,
        stream(
            StreamingContext.socketTextStream,
            "storageLevel",  # Spark's, without effect
            "receivers",
            calls={"hostname": "host"},
            leaves_out=FINE_TUNING["socket"],
        ),
    ),
    "socketStream": (
        FramedSocketReceiver,
        stream(
            StreamingContext.socketStream,
            calls={
                "hostname": "host",
                "lengthBytes": "length_bytes",
                "maxRecordBytes": "max_record_bytes",
            },
            leaves_out=FINE_TUNING["frames"],
        ),
    ),
    "ingest socket": (
        SocketReceiver,
        command(commands.socket, "framed", leaves_out=frozenset({"connect_timeout_ms"})),
    ),
    "tailStream": (
        TailReceiver,
        stream(
            StreamingContext.tailStream,
            calls={"path": "paths"},
            leaves_out=FINE_TUNING["tail"] | {"from_beginning"},
        ),
    ),
    "ingest tail": (
        TailReceiver,
        command(commands.tail, leaves_out=FINE_TUNING["tail"] - {"max_line_bytes"}),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_source_has_the_arguments_and_defaults_of_its_receiver(way: str) -> None:
    receiver, used = WAYS[way]
    wanted = Way(receiver).arguments()
    for name in used.leaves_out:
        assert wanted.pop(name) is not Parameter.empty, f"{name} is needed, and left out"
    for name in used.requires:
        wanted[name] = Parameter.empty
    assert used.arguments() == wanted

"""No error shows a value of a conf, whichever argument it was given as: a conf holds passwords."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from penstock.batched import Stream, from_kafka_batched
from penstock.batched.streamz import Stream as StreamzStream
from penstock.errors import ConfigError
from penstock.kafka import ClientConf
from penstock.kafka.spark import check_delivery
from penstock.model import check_name
from penstock.receivers.mqtt import MqttReceiver
from penstock.storage import open_storage

PASSWORD = "geheim-77"
BROKERS = {"bootstrap.servers": "127.0.0.1:1"}
CONF = {**BROKERS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
CONF |= {"sasl.username": "ann", "sasl.password": PASSWORD}


def stream() -> Stream:
    return from_kafka_batched(["in"], BROKERS, "/data/cp").flatten()


CALLS: dict[str, Callable[[], Any]] = {
    "to_kafka without topic": lambda: stream().to_kafka("/data/cp", CONF, CONF),
    "poll_interval": lambda: from_kafka_batched(["in"], BROKERS, poll_interval=CONF),  # type: ignore
    "max_batch_size": lambda: from_kafka_batched(["in"], BROKERS, max_batch_size=CONF),  # type: ignore
    "npartitions": lambda: from_kafka_batched(["in"], BROKERS, npartitions=CONF),  # type: ignore
    "checkpoint_path": lambda: from_kafka_batched(["in"], BROKERS, CONF),  # type: ignore
    "topics in a list": lambda: from_kafka_batched([CONF, CONF], BROKERS),  # type: ignore
    "auto.offset.reset": lambda: from_kafka_batched(["in"], {**CONF, "auto.offset.reset": CONF}),
    "a conf in a conf": lambda: ClientConf({**BROKERS, "x": CONF}),
    "a list in a conf": lambda: ClientConf({**BROKERS, "sasl.username": [PASSWORD]}),
    "delivery": lambda: check_delivery(CONF),
    "a conf in a text": lambda: ClientConf(f"sasl.username=ann;sasl.passwrd={PASSWORD}"),  # type: ignore
    "a name": lambda: check_name("output", CONF),  # type: ignore
    "a storage": lambda: open_storage(CONF),  # type: ignore
    "MqttReceiver's topics": lambda: MqttReceiver("h", 1883, [CONF]),  # type: ignore
}
for order in permutations(["out", CONF, "/data/cp"]):
    words = ", ".join("conf" if each is CONF else str(each) for each in order)
    if order[1] is not CONF:
        CALLS[f"from_kafka_batched({words})"] = lambda order=order: from_kafka_batched(*order)
    if order[0] is CONF or order == ("/data/cp", CONF, "out"):
        CALLS[f"to_kafka({words})"] = lambda order=order: stream().to_kafka(*order)
        CALLS[f"streamz to_kafka({words})"] = lambda order=order: StreamzStream().to_kafka(*order)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_conf_in_the_place_of_any_argument(call: Callable[[], Any]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is
        call()
    told, error = "", raised.value
    while error is not None:
        told += f"{error} {error.args}"
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert PASSWORD not in told
    assert isinstance(raised.value, ConfigError), told


def test_what_is_no_conf_is_shown() -> None:
    with pytest.raises(ConfigError, match=re.escape("{'sasl.password': ...}")):
        check_name("output", {"sasl.password": PASSWORD})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'a b'"):
        check_name("output", "a b")


@pytest.mark.parametrize("order", [("out", BROKERS, "/data/cp"), ("/data/cp", "out", BROKERS)])
def test_to_kafka_takes_the_order_of_the_proposal(order: tuple[Any, ...]) -> None:
    """``to_kafka(checkpoint_path, output_topic, producer_conf)``, as in streamz' issue 279."""
    (sink,) = stream().to_kafka(*order)._upstreams
    written: Any = sink._operation
    assert (written._topic, written._settings["bootstrap.servers"]) == ("out", "127.0.0.1:1")
    another = ("/data/other" if each == "/data/cp" else each for each in order)
    with pytest.raises(ConfigError, match="'/data/other'"):
        stream().to_kafka(*another)

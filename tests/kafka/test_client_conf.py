"""Settings of clients: what is refused, and that secrets are in nothing that is written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from penstock.errors import ConfigError, KafkaError
from penstock.kafka import ClientConf
from penstock.kafka.client_conf import is_secret, resolve, without_secrets
from penstock.kafka.failures import kafka_error
from penstock.kafka.losses import LossLog
from penstock.kafka.pass_over import PassOver
from penstock.kafka.reader import check_settings
from penstock.kafka.sink import sink_conf
from penstock.kafka.tasks import ReadColumns, ReadRecords
from penstock.kafka.topics import Topics
from penstock.storage import open_storage
from tests.free_port import free_port

BROKERS = {"bootstrap.servers": "a:9092"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.server": "a:1"}, "bootstrap.servers is missing; there is 'bootstrap.server'"),
        ("a:9092", r"conf='a:9092' is not possible.*\{'bootstrap.servers': 'a:9092'\}"),
        ([("bootstrap.servers", "a:1")], "conf=a list is not possible"),
        (
            {**BROKERS, "auto.offset.reset": "latest"},
            "auto.offset.reset is set by penstock.*starting=",
        ),
        ({**BROKERS, "enable.auto.commit": True}, "enable.auto.commit is on"),
        ({**BROKERS, "sasl.username": None}, "'sasl.username': a NoneType is not a setting"),
    ],
)
def test_wrong_settings(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClientConf(settings)


def test_a_sink_takes_the_conf_of_a_reader() -> None:
    reader = {"auto.offset.reset": "earliest", "enable.auto.commit": True, "group.id": "g"}
    assert sink_conf({**BROKERS, **reader}).settings() == BROKERS
    with pytest.raises(ConfigError, match="conf='a:9092' is not possible"):
        sink_conf("a:9092")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_secrets_are_in_no_pickle_and_no_text(name: str) -> None:
    conf = ClientConf({**BROKERS, name: "tell-nobody"})
    assert conf.settings()[name] == "tell-nobody"
    assert "tell-nobody" not in repr(conf)
    pickled = pickle.dumps(conf)
    assert b"tell-nobody" not in pickled
    restored = pickle.loads(pickle.dumps(pickle.loads(pickled)))
    with pytest.raises(ConfigError, match=rf"{name} is not in the graph.*{name}\.file="):
        restored.settings()


def test_files_that_the_client_reads_itself_are_left_to_it() -> None:
    """They end as those of secrets do; and where a token comes from is not a secret."""
    settings = {
        "sasl.oauthbearer.assertion.file": "/not/here",
        "sasl.oauthbearer.assertion.private.key.file": "/not/here",
        "sasl.oauthbearer.token.endpoint.url": "https://host/token",
    }
    assert resolve(settings) == settings
    assert not any(map(is_secret, settings))


def test_a_secret_in_a_file_is_read_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("tell-nobody\n")
    given = {**BROKERS, "sasl.password.file": str(tmp_path / "password")}
    conf = pickle.loads(pickle.dumps(ClientConf(given)))
    assert conf.settings() == given
    assert resolve(conf.settings()) == {**BROKERS, "sasl.password": "tell-nobody"}
    (tmp_path / "password").unlink()
    with pytest.raises(ConfigError, match=r"sasl\.password\.file names cannot be read"):
        resolve(conf.settings())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"fetch.max.byts": "5"}, 'No such configuration property: "fetch.max.byts"'),
        ({"isolation.level": "read_comitted"}, 'Invalid value "read_comitted"'),
        ({"session.timeout.ms": "soon"}, r".*\(it is 'soon'\).*the values of session\.timeout\.ms"),
        ({"fetch.min.bytes": 0}, r".*allowed range.*\(it is 0\)"),
    ],
)
def test_what_a_client_does_not_take_is_told_before_it_connects(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"refuses its settings: {message}"):
        check_settings({**BROKERS, **setting})


def test_brokers_that_cannot_be_reached_are_told_with_the_reason() -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    with pytest.raises(KafkaError, match=r"Connection refused.*security\.protocol is the one"):
        Topics(settings, ["t"]).scan()


def test_a_task_prints_without_secrets(tmp_path: Path) -> None:
    settings = {**BROKERS, "sasl.password": "tell-nobody"}
    pass_over = PassOver(settings, LossLog(open_storage(str(tmp_path)), "clicks"), to_latest=False)
    tasks = (ReadRecords(settings, pass_over=pass_over), ReadColumns(settings, [], pass_over))
    assert "tell-nobody" not in repr(tasks)


def test_a_secret_that_is_refused_is_not_told() -> None:
    with pytest.raises(ConfigError, match="refuses its settings") as refused:
        check_settings({**BROKERS, "ssl.key.pem": "tell-nobody", "security.protocol": "ssl"})
    assert "tell-nobody" not in str(refused.value)


@pytest.mark.parametrize("in_file", [False, True])
def test_a_refused_secret_is_not_in_what_the_brokers_connection_tells(
    tmp_path: Path, in_file: bool
) -> None:
    """Of this setting, librdkafka quotes what follows the part that it understood."""
    name, value = "sasl.oauthbearer.config", "principal=ann tell-nobody"
    if in_file:
        (tmp_path / "config").write_text(value)
        name, value = f"{name}.file", str(tmp_path / "config")
    settings = {**BROKERS, name: value, "no.secret.file": str(tmp_path / "missing")}
    told = ClientError(ClientError._AUTHENTICATION, "wrong config beginning at: tell-nobody")
    error = kafka_error(told, "read topic", settings)
    assert error.message == "Kafka: wrong config beginning at: *** (_AUTHENTICATION)"


def test_an_empty_secret_masks_nothing() -> None:
    assert without_secrets("refused", {"sasl.password": ""}) == "refused"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.assertion.file", "/run/assertion"),
        ("sasl.oauthbearer.assertion.private.key.file", "/run/key"),
        ("sasl.oauthbearer.assertion.jwt.template.file", "/run/template"),
        ("sasl.oauthbearer.token.endpoint.url", "https://host/token"),
    ],
)
def test_paths_and_addresses_of_the_client_are_no_secrets(name: str, value: str) -> None:
    conf = ClientConf({**BROKERS, name: value})
    assert conf.public == resolve(conf.settings()) == {**BROKERS, name: value}

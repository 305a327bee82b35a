"""Settings of Kafka clients on the command line: ``key=value``, or a file of such lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from penstock.errors import ConfigError
from penstock.kafka.client_conf import ClientConf, check_kafka_client, is_secret

ConfOption = Annotated[
    list[str],
    typer.Option(
        metavar="KEY=VALUE|FILE",
        help="A setting of librdkafka, or a file with one in each line. May be repeated. A secret"
        " is given by a file: sasl.password.file=PATH.",
        show_default=False,
    ),
]


def client_settings(brokers: str | None, conf: Iterable[str]) -> dict[str, str]:
    """Return the settings of a command's clients.

    Raises:
        ConfigError: as ``_parse_conf``; the client is not installed, or does not take them.
    """
    check_kafka_client("penstock kafka")
    from penstock.kafka.reader import check_settings

    given = _parse_conf(conf)
    if brokers is not None:
        given["bootstrap.servers"] = brokers
    settings = ClientConf(given).settings()
    check_settings(settings)
    return settings


def _parse_conf(given: Iterable[str]) -> dict[str, str]:
    """Return the settings; what comes later replaces what came before.

    Raises:
        ConfigError: a file cannot be read, a line is not a setting, or a secret stands on the
            command line, where every user of the host sees it.
    """
    conf: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            conf |= _read(each)
            continue
        if is_secret(name.strip()):
            raise _wrong(
                f"{name.strip()} is a secret, and is not accepted on the command line",
                f"give {name.strip()}.file=PATH of a file with it",
            )
        conf[name.strip()] = value.strip()
    return conf


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(
            f"{path} is not a setting, and no file that can be read: {error}",
            "give key=value, or a file with such lines",
        ) from error
    settings = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if not all(equals for _, equals, _ in settings):
        raise _wrong(f"{path} has a line without =", "write key=value in each line")
    return {name.strip(): value.strip() for name, _, value in settings}


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation="read Kafka settings", hint=hint)

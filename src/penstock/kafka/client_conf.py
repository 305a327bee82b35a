"""What clients connect with: librdkafka's settings, with secrets that no file of penstock holds.

A secret may be given as a file that each host has: ``{"sasl.password.file": "/run/secrets/kafka"}``
instead of ``sasl.password``. One that is given itself travels to the executors with each job, and
is left out whenever the settings are pickled: graph checkpoints, logs and errors do not have it.

A function that provides tokens, confluent-kafka's ``oauth_cb``, is given by its import path, which
each host imports (``"my_module:token"``), or itself: then it travels as a secret does.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError
from penstock.model import shown

OAUTH = "oauth_cb"
"""A function that returns a token and when it ends: confluent-kafka's, none of librdkafka's."""
_UNSIGNED = "enable.sasl.oauthbearer.unsecure.jwt"
_FUNCTION = re.compile(r"[\w.]+:[\w.]+")
_ADDRESSES = re.compile(r"[\w.-]+:[0-9]+(, *[\w.-]+:[0-9]+)*")
_FILE = ".file"
_OWN_FILES = frozenset(
    f"sasl.oauthbearer.assertion{part}{_FILE}" for part in ("", ".private.key", ".jwt.template")
)
"""Settings of librdkafka's that are paths themselves."""
_SECRET = re.compile(
    r"password|passphrase|secret|\.key\.pem$|\.certificate\.pem$|oauthbearer\.config"
    r"|token(?!\.endpoint\.url$)"
)
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_TOKEN_HINT = (
    "give 'my_module:token', a function that returns a token and when it ends, in seconds since "
    "the epoch"
)
_LEFT_S = 2.0
_log = logging.getLogger(__name__)
_WORD = 4
"""The length from which on a word of a secret is masked, too."""
_OURS = {
    "auto.offset.reset": "starting=",
    "enable.auto.offset.store": None,
    "enable.partition.eof": None,
    "partition.assignment.strategy": None,
    "group.instance.id": None,
}
"""Settings by which a client would choose what it reads, and what to use instead."""


class ClientConf:
    """The settings of a program's Kafka clients.

    Args:
        settings: librdkafka's settings by their names.

    Raises:
        ConfigError: there are no brokers, a value is not a text, number or bool, or the setting is
            penstock's to make.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        settings = settings_of(settings)
        for name, value in settings.items():
            _check(name, value)
        if not any(settings.get(name) for name in _BROKERS):
            alike = get_close_matches(_BROKERS[0], settings, 1, 0.8)
            there = f"; there is {alike[0]!r}" if alike else ""
            raise _wrong(
                f"bootstrap.servers is missing{there}", "name the brokers: 'host:9092,host2:9092'"
            )
        if settings.get("enable.auto.commit") not in (None, False, "false"):
            raise _wrong(
                "enable.auto.commit is on, and would commit records that no batch has processed",
                "leave it out: offsets are committed after each batch",
            )
        _check_tokens(settings)
        self._secrets = {k: v for k, v in settings.items() if is_secret(k) or callable(v)}
        self.public = {k: v for k, v in settings.items() if k not in self._secrets}
        """The settings without secrets."""
        self._lost: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return all settings, with files of secrets to be read by ``resolve`` on each host.

        Raises:
            ConfigError: a secret was left out when a graph checkpoint was written.
        """
        if self._lost:
            instead = f"a file that each host has instead ({self._lost[0]}{_FILE}=)"
            if self._lost[0] == OAUTH:
                instead = f"its import path instead ({OAUTH}='my_module:token')"
            raise _wrong(
                f"{', '.join(self._lost)} is not in the graph checkpoint, which holds no secrets",
                f"give {instead}, or recover with recover='program'",
            )
        return {**self.public, **self._secrets}

    def __getstate__(self) -> dict[str, Any]:
        lost = tuple(sorted({*self._lost, *self._secrets}))
        return {"public": self.public, "_secrets": {}, "_lost": lost}

    def __repr__(self) -> str:
        return f"ClientConf({self.public!r}, secrets={sorted(self._secrets)})"


class _Tokens:
    """Calls the function of a client's tokens; when it fails, the last token serves to its end."""

    def __init__(self, provide: Callable[[str], Sequence[Any]]) -> None:
        self._provide = provide
        self._last: tuple[Any, ...] | None = None
        self.error = ""
        """Why it failed last, and has not succeeded since."""

    def __call__(self, config: str) -> tuple[Any, ...]:
        """Return the token, and when it ends; raises what the function does."""
        try:
            self._last, self.error = tuple(self._provide(config)), ""
        except Exception as error:
            self.error = f"{OAUTH}: {type(error).__name__}: {error}"
            if self._last is None or self._last[1] - time.time() < _LEFT_S:
                raise
            _log.warning("%s failed; the token before serves until it ends: %s", OAUTH, error)
        return self._last


def check_kafka_client(operation: str) -> None:
    """Raise ConfigError if the Kafka client is not installed: it is an extra."""
    if find_spec("confluent_kafka") is None:
        raise ConfigError(
            f"{operation} needs confluent-kafka",
            operation=operation,
            hint="pip install 'penstock-spark[kafka]', also where the executors run",
        )


def settings_of(conf: Any) -> dict[str, Any]:
    """Return a copy of a conf that a program gives.

    Raises:
        ConfigError: it is not a mapping.
    """
    if not isinstance(conf, Mapping):
        is_brokers = isinstance(conf, str) and _ADDRESSES.fullmatch(conf)
        what = repr(conf) if is_brokers else f"a {type(conf).__name__}"
        brokers = conf if is_brokers else "host:9092"
        raise _wrong(
            f"conf={what} is not possible", f"give a dict: {{'bootstrap.servers': {brokers!r}}}"
        )
    return dict(conf)


def is_secret(name: str) -> bool:
    """Whether a setting holds a secret itself, and not the path of a file with it."""
    return bool(_SECRET.search(name)) and not name.endswith((_FILE, ".location", ".url"))


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the contents of the files of secrets, and the function of tokens.

    Raises:
        ConfigError: a file cannot be read, or the function not be imported.
    """
    resolved: dict[str, Any] = {}
    for name, value in settings.items():
        if name == OAUTH:
            resolved[name] = _Tokens(value if callable(value) else _imported(value))
            continue
        if not name.endswith(_FILE) or name in _OWN_FILES:
            resolved[name] = value
            continue
        try:
            resolved[name.removesuffix(_FILE)] = Path(value).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(
                f"the file that {name} names cannot be read", "put it on each host", value
            ) from error
    return resolved


def client_key(settings: Mapping[str, Any]) -> str:
    """Return what tells the settings of a client from others, with secrets.

    Each task has a copy of a function of the program's, so that is told by what it is pickled to.
    """
    # What has unpickled the copies is there; a process without copies needs neither.
    found = (sys.modules.get(name) for name in ("pyspark.cloudpickle", "cloudpickle"))
    dumps = getattr(next(filter(None, found), None), "dumps", repr)
    return repr(sorted((k, dumps(v) if callable(v) else v) for k, v in settings.items()))


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """Return what a client tells, with ``***`` for secrets of its settings, and for words of them.

    librdkafka quotes values that it refuses, or what is left of them.
    """
    held: dict[str, Any] = {}
    for name, value in settings.items():
        with suppress(ConfigError):  # a file that cannot be read holds nothing that was told
            held |= resolve({name: value})
    secrets = [str(value) for name, value in held.items() if is_secret(name)]
    words = [word for secret in secrets for word in secret.split() if len(word) >= _WORD]
    for secret in sorted({*secrets, *words} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _check_tokens(settings: Mapping[str, Any]) -> None:
    """Refuse a client that would wait for tokens that nothing provides."""
    mechanisms = {settings.get(name) for name in ("sasl.mechanism", "sasl.mechanisms")}
    by_itself = settings.get("sasl.oauthbearer.method") == "oidc" or settings.get(_UNSIGNED)
    if "OAUTHBEARER" in mechanisms and OAUTH not in settings and not by_itself:
        raise _wrong(
            "sasl.mechanism is OAUTHBEARER, and nothing provides tokens",
            f"give {OAUTH}='my_module:token', a function that returns a token and when it ends "
            "(docs/kafka.md has the one for Amazon MSK), or sasl.oauthbearer.method=oidc with its "
            "settings",
        )


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found = attrgetter(name)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise _wrong(
            f"{OAUTH} names {path}, which cannot be imported: {error}",
            "install it, or put its folder in PYTHONPATH, on each host: where the driver runs, "
            "executors and commands",
        ) from error
    if not callable(found):
        raise _wrong(f"{OAUTH} names {path}, which is no function", _TOKEN_HINT)
    return found


def _check(name: str, value: Any) -> None:
    if name == OAUTH:
        if callable(value) or (isinstance(value, str) and _FUNCTION.fullmatch(value)):
            return
        raise _wrong(f"{OAUTH} is neither a function nor the import path of one", _TOKEN_HINT)
    if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
        what = f"{shown(name)}: a {type(value).__name__}"
        raise _wrong(f"{what} is not a setting", "use librdkafka's settings: text to text")
    if name in _OURS:
        instead = _OURS[name]
        raise _wrong(f"{name} is set by penstock", f"use {instead}" if instead else "leave it out")


def _wrong(message: str, hint: str, path: str | None = None) -> ConfigError:
    return ConfigError(message, operation="configure Kafka client", path=path, hint=hint)

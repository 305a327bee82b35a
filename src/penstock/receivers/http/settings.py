"""How an HTTP receiver listens, and what it takes: checked where it is given."""

from __future__ import annotations

import importlib.util
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError

_OPERATION = "set up HTTP receiver"
_PACKAGES = ("uvicorn", "httptools")
_LARGEST_BODY_BYTES = 256 << 20
"""Arrow counts the bytes of a column in 32 bits, and a replaced byte grows to three."""


@dataclass(frozen=True)
class HttpSettings:
    """See HttpReceiver."""

    host: str
    port: int
    token_file: str | None
    tls_certificate: str | None
    tls_key: str | None
    max_body_bytes: int
    max_expanded_bytes: int
    idempotency_window_ms: int
    finer_times: str = "cut"
    content_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        _check_packages()
        if not isinstance(self.host, str) or not self.host.strip():
            raise _refusal(f"host {self.host!r} is not a name or an address", _host_hint(self.host))
        if not isinstance(self.port, int) or not 0 <= self.port <= 65535:
            raise _refusal(f"port {self.port!r} is not a TCP port", "pass 0 for any free port")
        if self.token_file is None and not is_loopback(self.host):
            raise _refusal(
                f"host {self.host!r} can be reached from other hosts, and no token is required",
                "give token_file=FILE, a file with a bearer token, or host='127.0.0.1'",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise _refusal(
                "a TLS certificate needs its key", "give both tls_certificate and tls_key"
            )
        for name in ("max_body_bytes", "max_expanded_bytes"):
            if not 1 <= getattr(self, name) <= _LARGEST_BODY_BYTES:
                raise _refusal(
                    f"{name} is {getattr(self, name)}",
                    f"give a number from 1 to {_LARGEST_BODY_BYTES} (256 MiB)",
                )
        if not self.idempotency_window_ms > 0:
            raise _refusal(
                f"idempotency_window_ms is {self.idempotency_window_ms}",
                "give a number of milliseconds above 0",
            )
        if self.finer_times not in ("cut", "refuse"):
            raise _refusal(f"finer_times is {self.finer_times!r}", "give 'cut' or 'refuse'")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a socket that is bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: str) -> bytes:
    """Return the token in a file, without space around it.

    Raises:
        ConfigError: there is none.
    """
    try:
        with open(path, "rb") as file:
            token = file.read().strip()
    except OSError as e:
        raise ConfigError(
            "the token file cannot be read",
            operation="start HTTP receiver",
            path=path,
            hint="put it where the receiver runs, readable by its user only",
        ) from e
    if not token:
        raise ConfigError(
            "the token file is empty",
            operation="start HTTP receiver",
            path=path,
            hint="write a token into it, for example by `openssl rand -hex 32`",
        )
    return token


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return what serves TLS 1.2 and later with a certificate (chain) and its key, PEM files.

    Raises:
        ConfigError: they cannot be read, or do not fit each other.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(
            "the TLS certificate or its key cannot be used",
            operation="start HTTP receiver",
            path=certificate,
            hint="give PEM files, the certificate's chain in one, the key without a password",
        ) from e
    return context


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise _refusal(
            f"HttpReceiver needs {' and '.join(missing)}",
            "run `pip install 'penstock-spark[http]'`",
        )


def _refusal(what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation=_OPERATION, hint=hint)


def _host_hint(host: object) -> str:
    port = f": the port is the second argument (port={host})" if isinstance(host, int) else ""
    return f"pass '127.0.0.1'{port}"

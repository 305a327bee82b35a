"""What a request's head says of its body. Pure: headers in, facts or a refusal out."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from penstock.errors import ConfigError
from penstock.receivers.http.answers import RefusedError

Kind: TypeAlias = Literal["ndjson", "text", "json", "binary"]
"""Part of what kept idempotency keys are compared with: a name stays what it is."""
Types: TypeAlias = tuple[tuple[str, Kind], ...]

_NAMES: dict[str, Kind] = {"json": "json", "ndjson": "ndjson", "lines": "text", "body": "binary"}
_KINDS: dict[str, Kind] = {
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/plain": "text",
    "application/json": "json",
    "application/octet-stream": "binary",
}
_UTF8 = {"utf-8", "utf8", "us-ascii"}
_MAX_KEY_BYTES = 255


def content_types(
    given: Mapping[str, str], accepted: Iterable[Kind], alone: Iterable[Kind]
) -> Types:
    """Return how bodies of each media type are read.

    Args:
        given: of types that the user says: ``json``, ``ndjson``, ``lines`` or ``body``.
        accepted: what records can be made of.
        alone: the part of it for which types need not be given.

    Raises:
        ConfigError: a name is none of these, or records cannot be made of such bodies.
    """
    accepted, alone = tuple(accepted), tuple(alone)
    names = [name for name, kind in _NAMES.items() if kind in accepted]
    for media_type, name in given.items():
        if name not in names:
            raise ConfigError(
                f"bodies of type {media_type!r} cannot be read as {name!r} with this schema",
                operation="set up HTTP receiver",
                hint=f"give one of {', '.join(names)}, as in content_types={{'{media_type}': "
                f"'{names[0]}'}} or --content-type {media_type}={names[0]}",
            )
    known = {name: kind for name, kind in _KINDS.items() if kind in alone}
    return tuple((known | {name.lower(): _NAMES[how] for name, how in given.items()}).items())


class Head(NamedTuple):
    """The headers that matter."""

    kind: Kind
    is_gzip: bool = False
    length: int | None = None
    key: bytes | None = None
    """The Idempotency-Key."""


def check_caller(headers: Iterable[tuple[bytes, bytes]], authorization: bytes | None) -> None:
    """Return if the request may store records: it has that Authorization, where one is asked for.

    Raises:
        RefusedError: 401, or 403 for a page in a browser where nothing is asked for: any page could
            otherwise post to a receiver on its reader's machine.
    """
    given = b""
    for name, value in headers:
        if name == b"authorization":
            given = value
        elif name == b"origin" and authorization is None:
            raise RefusedError(403, "requests from browsers require a token")
    if authorization is not None and not hmac.compare_digest(given, authorization):
        challenge = (b"www-authenticate", b'Bearer realm="penstock"')
        raise RefusedError(401, "a bearer token is required", headers=(challenge,))


def read_head(headers: Iterable[tuple[bytes, bytes]], types: Types) -> Head:
    """Return what the headers (names in lower case) say.

    Raises:
        RefusedError: 415 for a type that is not in ``types`` or an encoding, 501 for a transfer
            coding, 400 for other nonsense.
    """
    wanted = [header for header in headers if header[0] in _WANTED]
    found = dict(wanted)
    if len(found) < len(wanted):
        raise RefusedError(400, "a header that may occur once occurs twice")
    if found.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        # Only the chunks are taken off: what they hold would be stored as it is compressed.
        raise RefusedError(501, "Transfer-Encoding is not chunked; give Content-Encoding: gzip")
    return Head(
        kind=_kind(found.get(b"content-type", b""), types),
        is_gzip=_is_gzip(found.get(b"content-encoding")),
        length=_length(found.get(b"content-length")),
        key=_key(found.get(b"idempotency-key")),
    )


_WANTED = frozenset(
    (
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"idempotency-key",
        b"transfer-encoding",
    )
)


@functools.lru_cache(maxsize=64)
def _kind(content_type: bytes, types: Types) -> Kind:
    name, *parameters = (part.strip().lower() for part in content_type.decode("latin-1").split(";"))
    kind = dict(types).get(name)
    if kind is None:
        names = ", ".join(name for name, _ in types)
        raise RefusedError(
            415,
            f"Content-Type {name!r} is not one of {names}; the receiver's content_types can say "
            "what it is",
        )
    for parameter in parameters:
        attribute, _, value = parameter.partition("=")
        if attribute == "charset" and value.strip('"') not in _UTF8:
            raise RefusedError(415, f"charset {value} is not utf-8")
    return kind


def _is_gzip(encoding: bytes | None) -> bool:
    if encoding is None or encoding.lower() == b"identity":
        return False
    if encoding.lower() in (b"gzip", b"x-gzip"):
        return True
    raise RefusedError(
        415, "Content-Encoding is not gzip or identity", headers=((b"accept-encoding", b"gzip"),)
    )


def _length(content_length: bytes | None) -> int | None:
    # The server's parser has refused what is not a number.
    return None if content_length is None else int(content_length)


def _key(key: bytes | None) -> bytes | None:
    if key is not None and not 0 < len(key) <= _MAX_KEY_BYTES:
        raise RefusedError(400, f"Idempotency-Key must have 1 to {_MAX_KEY_BYTES} bytes")
    return key

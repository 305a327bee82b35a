"""Makes clients of librdkafka, and errors of what they answer."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.kafka import librdkafka as c
from penstock.kafka.client_conf import OAUTH

Callbacks = Iterable[tuple[Callable[[int, Any], None], Any]]
"""Functions that set a callback of a configuration, and the callbacks."""
_TEXT_BYTES = 512


def new_client(kind: int, settings: Mapping[str, Any], callbacks: Callbacks) -> int:
    """Return a client.

    Args:
        kind: ``CONSUMER`` or ``PRODUCER``.
        settings: librdkafka's, by their names.
        callbacks: librdkafka does not keep them alive.

    Raises:
        KafkaException: a setting is unknown, or has a wrong value.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = c.conf_new()
    for name, value in settings.items():
        if name == OAUTH:
            c.conf_enable_sasl_queue(conf, 1)
            continue
        given = str(value).lower() if isinstance(value, bool) else str(value)
        if c.conf_set(conf, name.encode(), given.encode(), text, _TEXT_BYTES):
            c.conf_destroy(conf)
            raise _error(ClientError._INVALID_ARG, text)
    for set_callback, callback in callbacks:
        set_callback(conf, callback)
    handle = c.new(kind, conf, text, _TEXT_BYTES)
    if not handle:
        code = c.last_error()
        c.conf_destroy(conf)
        raise _error(code, text)
    if OAUTH in settings:  # or a call that waits for brokers would wait for a token, too
        check_error(c.sasl_in_background(handle))
    return int(handle)


def token_callbacks(settings: Mapping[str, Any]) -> Callbacks:
    """Return the callback by which a client gets its tokens, if ``oauth_cb`` provides them.

    As in confluent-kafka, the function is given ``sasl.oauthbearer.config`` and returns a token and
    when it ends, in seconds since the epoch; after these, if it wants, a principal and extensions.
    """
    provide = settings.get(OAUTH)
    if provide is None:
        return ()

    def refresh(handle: int, config: bytes | None, _opaque: Any) -> None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        try:
            token, until_s, *more = provide((config or b"").decode())
            principal, extensions = more[0] if more else "", more[1] if more[1:] else {}
            pairs = [part.encode() for item in extensions.items() for part in item]
            held = (ctypes.c_char_p * len(pairs))(*pairs)
            until_ms = round(1000 * until_s)
            failed = c.set_token(
                *(handle, token.encode(), until_ms, principal.encode()),
                *(held, len(pairs), text, _TEXT_BYTES),
            )
        except BaseException as error:  # librdkafka asks again in 10 s
            c.set_token_failure(handle, f"{OAUTH}: {type(error).__name__}: {error}".encode())
            return
        if failed:
            c.set_token_failure(handle, text.value)

    return [(c.conf_set_refresh_cb, c.RefreshCallback(refresh))]


def ends_client(
    owner: object, end: Callable[..., None], *given: object
) -> weakref.finalize[[], object]:
    """Return what ends a client, once: when it is called, or its owner is gone.

    Not when the interpreter exits, as its threads end with the process; and not in a fork, which
    has none of them to wait for.
    """
    process = os.getpid()

    def end_here() -> None:
        if os.getpid() == process:
            end(*given)

    ends = weakref.finalize(owner, end_here)
    ends.atexit = False
    return ends


def fatal_error(handle: int) -> ClientError | None:
    """Return why a client failed for good, None if it did not."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    code = c.fatal_error(handle, text, _TEXT_BYTES)
    return ClientError(code, text.value.decode(errors="replace"), fatal=True) if code else None


def check_code(code: int) -> None:
    """Raise KafkaException for the code of an error; 0 is none."""
    if code:
        raise KafkaException(ClientError(code))


def check_error(error: int | None) -> None:
    """Raise KafkaException for an ``rd_kafka_error_t``, which is destroyed; None is none."""
    if not error:
        return
    found = ClientError(
        c.error_code(error),
        c.error_string(error).decode(errors="replace"),
        fatal=bool(c.error_is_fatal(error)),
        retriable=bool(c.error_is_retriable(error)),
        txn_requires_abort=bool(c.error_txn_requires_abort(error)),
    )
    c.error_destroy(error)
    raise KafkaException(found)


def _error(code: int, text: ctypes.Array[ctypes.c_char]) -> KafkaException:
    return KafkaException(ClientError(code, text.value.decode(errors="replace")))

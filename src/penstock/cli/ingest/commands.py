"""The commands of ``penstock ingest``: each makes a receiver from its options."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from penstock.cli.ingest.options import size_option, with_ingest_options
from penstock.cli.ingest.process import run_ingest
from penstock.errors import ConfigError
from penstock.receivers import (
    FramedSocketReceiver,
    HttpReceiver,
    MqttReceiver,
    Receiver,
    SocketReceiver,
    TailReceiver,
)
from penstock.receivers.lines import DEFAULT_MAX_LINE_BYTES

app = typer.Typer(
    name="ingest",
    no_args_is_help=True,
    short_help="Receive into a journal without Spark.",
    help="Receive into a journal without Spark, so that ingestion continues while Spark restarts. "
    "SIGTERM, SIGINT or SIGHUP ends it: buffered records become durable first. Exit status 0 after "
    "a stop, 1 after an error, 2 for wrong options, 3 when another process took over, 4 when the "
    "journal is full and --when-full is fail.",
)
_ingest = with_ingest_options(run_ingest)

_MaxLineBytes = Annotated[
    int,
    typer.Option(
        parser=size_option, metavar="SIZE", help="A longer line is not read, and reported."
    ),
]


@app.command("http")
@_ingest
def http(
    host: Annotated[
        str, typer.Option(help="Address to bind to; off loopback a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 takes any free one.")] = 8080,
    schema: Annotated[
        str,
        typer.Option(
            help="Kind of the records: string, binary, columns as in 'id int64 not null, at "
            "timestamp[us, UTC]', or a file with them (.json, .avsc, .arrow)."
        ),
    ] = "string",
    token_file: Annotated[
        str | None, typer.Option(help="File with the bearer token that requests must carry.")
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(help="PEM file with certificate and chain: serve HTTPS.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file with its key.")] = None,
    max_body_bytes: Annotated[
        int, typer.Option(parser=size_option, metavar="SIZE", help="Largest body, as sent.")
    ] = 16 << 20,
    max_expanded_bytes: Annotated[
        int, typer.Option(parser=size_option, metavar="SIZE", help="Largest gzip body, expanded.")
    ] = 64 << 20,
    finer_times: Annotated[
        str,
        typer.Option(help="Times with more digits than their column: cut, or refuse."),
    ] = "cut",
    content_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE=FORM",
            help="What bodies of a media type are: json, ndjson, lines or body, as in "
            "text/plain=json. May be repeated.",
        ),
    ] = None,
) -> Receiver:
    """Serve POST requests; each is answered when its records are durable."""
    return HttpReceiver(
        host,
        port,
        schema=schema,
        token_file=token_file,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        max_body_bytes=max_body_bytes,
        max_expanded_bytes=max_expanded_bytes,
        finer_times=finer_times,
        content_types=dict(map(_content_type, content_type or ())),
    )


def _content_type(text: str) -> tuple[str, str]:
    name, _, form = text.partition("=")
    return name, form


@app.command("mqtt")
@_ingest
def mqtt(
    topics: Annotated[list[str], typer.Argument(help="Topic filters, with + and #.")],
    host: Annotated[str, typer.Option(help="The broker.", show_default=False)],
    port: Annotated[int, typer.Option(help="Its TCP port.")] = 1883,
    qos: Annotated[int, typer.Option(min=0, max=2, help="Highest quality of service.")] = 1,
    client_id: Annotated[
        str | None, typer.Option(help="Names the session.", show_default="penstock-STREAM")
    ] = None,
    version: Annotated[str, typer.Option(help="MQTT version: 3.1.1 or 5.")] = "3.1.1",
    share_group: Annotated[
        str | None, typer.Option(help="Share the messages with all clients of this group.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="The user name.")] = None,
    password_file: Annotated[str | None, typer.Option(help="File with the password.")] = None,
    tls: Annotated[bool, typer.Option(help="Use TLS; implied by the options below.")] = False,
    tls_ca: Annotated[str | None, typer.Option(help="PEM file of the trusted CA.")] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(help="PEM file with this client's certificate.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file with its key.")] = None,
) -> Receiver:
    """Subscribe at an MQTT broker; messages are acknowledged when they are durable."""
    return MqttReceiver(
        host,
        port,
        topics,
        qos=qos,
        client_id=client_id,
        version=version,
        share_group=share_group,
        username=username,
        password_file=password_file,
        tls=tls,
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )


@app.command("socket")
@_ingest
def socket(
    host: Annotated[str, typer.Option(help="The server to connect to.", show_default=False)],
    port: Annotated[int, typer.Option(help="Its TCP port.", show_default=False)],
    framed: Annotated[
        bool, typer.Option(help="Records are binary, each after its length (4 bytes).")
    ] = False,
    max_line_bytes: _MaxLineBytes = DEFAULT_MAX_LINE_BYTES,
) -> Receiver:
    """Receive lines, or length-prefixed records, from a TCP server."""
    if framed:
        return FramedSocketReceiver(host, port)
    return SocketReceiver(host, port, max_line_bytes=max_line_bytes)


@app.command("tail")
@_ingest
def tail(
    paths: Annotated[
        list[str], typer.Argument(help="Files or globs (quoted, so that new files are seen).")
    ],
    from_beginning: Annotated[
        bool, typer.Option(help="At the very first start: read the existing content of the files.")
    ] = True,
    max_line_bytes: _MaxLineBytes = DEFAULT_MAX_LINE_BYTES,
) -> Receiver:
    """Follow growing files as tail -F does, each line exactly once."""
    return TailReceiver(paths, from_beginning=from_beginning, max_line_bytes=max_line_bytes)


@app.command("custom")
@_ingest
def custom(
    receiver_class: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A subclass of Receiver.")
    ],
    arg: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of the class; the value is JSON, or otherwise text. May be repeated.",
        ),
    ] = [],  # noqa: B006 - typer copies it
) -> Receiver:
    """Run a custom receiver."""
    return _make_custom(receiver_class, arg)


def _make_custom(name: str, arguments: Iterable[str]) -> Receiver:
    """Return ``package.module:Class`` made with ``name=value`` arguments.

    Modules are also searched in the working directory, as with ``python -m``.

    Raises:
        ConfigError: the class does not exist, is not a receiver, or does not accept the arguments.
    """
    kind = _find(name)
    values = dict(map(_custom_argument, arguments))
    try:
        return kind(**values)
    except TypeError as e:
        raise _refused(f"{name} does not accept these arguments: {', '.join(values)}") from e


def _find(name: str) -> type[Receiver]:
    module_name, colon, class_name = name.partition(":")
    if not (module_name and colon and class_name):
        raise _refused(f"{name!r} names no class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as e:
        raise _refused(f"{name!r} cannot be imported") from e
    if not (isinstance(found, type) and issubclass(found, Receiver)):
        raise _refused(f"{name!r} is not a subclass of penstock.receivers.Receiver")
    return found


def _custom_argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise _refused(f"argument {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _refused(message: str) -> ConfigError:
    return ConfigError(
        message,
        operation="make receiver",
        hint="give package.module:Class, and --arg name=value for each argument of the class",
    )

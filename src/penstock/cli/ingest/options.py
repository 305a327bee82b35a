"""The common options of all ``penstock ingest`` commands."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from penstock.cli.log import report_error
from penstock.conf import MetricsSettings
from penstock.errors import ConfigError, FencedError, JournalFullError, PenstockError
from penstock.journal import Bounds
from penstock.model import COMPRESSIONS, WHEN_FULL, WhenFull, check_name, parse_size
from penstock.receivers import Receiver, receiver_bounds

Compression = Enum("Compression", {name: name for name in COMPRESSIONS}, type=str)  # type: ignore[misc]
WhenFullOption = Enum("WhenFullOption", {name: name for name in WHEN_FULL}, type=str)  # type: ignore[misc]

_UNCOMPRESSED = Compression("none")
_BLOCK = WhenFullOption("block")
_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (ConfigError, 2),
    (FencedError, 3),
    (JournalFullError, 4),
    (PenstockError, 1),
)
"""The exit status of each error, in this order; wrong usage of the command line has status 2."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The destination of records, and its bounds.

    Raises:
        ConfigError: a name is not allowed.
    """

    journal: str
    stream: str
    receiver: str
    bounds: Bounds
    when_full: WhenFull
    compression: str
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    ui_port: int | None = None
    """Where the dashboard is served on loopback; None for nowhere."""

    def __post_init__(self) -> None:
        check_name("stream", self.stream)
        check_name("receiver", self.receiver)


def size_option(text: str | int) -> int:
    """Return the bytes in ``500m`` or ``20g``; a default comes as a number.

    Raises:
        typer.BadParameter: it is not a size.
    """
    size = parse_size(str(text))
    if size is None:
        raise typer.BadParameter(
            f"{text!r} is not a size: give bytes, or a size such as 500m or 20g"
        )
    return size


def _common(
    journal: Annotated[
        str, typer.Option(help="Location of the journal: a folder or URL.", show_default=False)
    ],
    stream: Annotated[str, typer.Option(help="The stream to write.", show_default=False)],
    receiver: Annotated[
        str,
        typer.Option(
            help="This receiver's name within the stream. A second process with the same name "
            "takes "
            "over from the first."
        ),
    ] = "ingest",
    max_journal_bytes: Annotated[
        int | None,
        typer.Option(
            parser=size_option,
            metavar="SIZE",
            help="Stop receiving while its blocks that are not yet committed by every "
            "consumer have this many bytes, such as 20g.",
            show_default="no bound",
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            help="Stop receiving while this many of its records are not yet committed by "
            "every consumer.",
            show_default="no bound",
        ),
    ] = None,
    when_full: Annotated[
        WhenFullOption,
        typer.Option(help="At a bound: let the source wait, or end with status 4."),
    ] = _BLOCK,
    compression: Annotated[Compression, typer.Option(help="Block codec.")] = _UNCOMPRESSED,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve Prometheus metrics at this port; 0 takes any free one.",
            show_default="none",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address of the metrics; off loopback a token is required.")
    ] = "127.0.0.1",
    metrics_token_file: Annotated[
        str | None, typer.Option(help="File with the bearer token that scrapes must carry.")
    ] = None,
    ui_port: Annotated[
        int | None,
        typer.Option(
            help="Serve the dashboard of the journal at this port of the loopback interface; 0 "
            "takes any free one.",
            show_default="none",
        ),
    ] = None,
) -> IngestOptions:
    """Gather the options; its signature is what the commands show."""
    return IngestOptions(
        journal,
        stream,
        receiver,
        receiver_bounds(max_journal_bytes, max_lag),
        when_full.value,
        compression.value,
        MetricsSettings(metrics_port, metrics_host, metrics_token_file),
        ui_port,
    )


def with_ingest_options(
    run: Callable[[Receiver, IngestOptions], None],
) -> Callable[[Callable[..., Receiver]], Callable[..., None]]:
    """Return a decorator: of what makes a receiver from its own options it makes a command.

    The command has both kinds of options, and has ``run`` run the receiver.
    """

    def decorate(make: Callable[..., Receiver]) -> Callable[..., None]:
        own, common = _parameters(make), _parameters(_common)

        @wraps(make)
        def command(**values: Any) -> None:
            with _exit_status():
                options = _common(**{name: values.pop(name) for name in common})
                with _told_as_options(own):
                    made = make(**values)
                run(made, options)

        parameters = [*own.values(), *common.values()]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


@contextmanager
def _exit_status() -> Iterator[None]:
    """End the process with one line and the status of an error of penstock's own."""
    try:
        yield
    except PenstockError as error:
        report_error(error)
        sys.exit(next(status for kind, status in _STATUS if isinstance(error, kind)))


@contextmanager
def _told_as_options(names: Iterable[str]) -> Iterator[None]:
    """Replace ``token_file=FILE`` in a ConfigError by ``--token-file FILE``."""
    try:
        yield
    except ConfigError as error:
        error.message = _as_options(error.message, names)
        error.hint = error.hint and _as_options(error.hint, names)
        raise


def _as_options(text: str, names: Iterable[str]) -> str:
    for name in names:
        option = f"--{name.replace('_', '-')}"
        text = re.sub(rf"(?<![\w/.-]){name}=", f"{option} ", text)
        if "_" in name:  # other names are also words
            text = re.sub(rf"(?<![\w/.-]){name}(?![\w/.])", option, text)
    return text


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return a function's parameters by name, all by keyword, with types instead of their text."""
    types = get_type_hints(function, include_extras=True)
    return {
        name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[name])
        for name, each in inspect.signature(function).parameters.items()
    }

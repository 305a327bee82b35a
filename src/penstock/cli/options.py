"""Options and arguments that several commands take, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

NOT_YET = "nothing is changed yet: add --apply to do it"
"""Ends what a command prints that only shows a plan."""

_BROKERS = "HOST:PORT,..."

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LocationArgument = Annotated[
    str, typer.Argument(metavar="DIR", help="The checkpoint location: a folder or URL.")
]

# Commands that change something.
NewLocationArgument = Annotated[
    str, typer.Argument(metavar="TO", help="A folder or URL with nothing in it.")
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Do it; otherwise only the plan is shown.")
]
PlanJsonOption = Annotated[
    bool, typer.Option("--json", help="Print the plan and what was done as JSON.")
]

# Kafka; its clients' settings are in penstock.cli.kafka_conf.
BrokersOption = Annotated[
    str | None, typer.Option(metavar=_BROKERS, help="The brokers: bootstrap.servers.")
]
CheckBrokersOption = Annotated[
    str | None,
    typer.Option(metavar=_BROKERS, help="Check there that Kafka's topics have the records."),
]
LagBrokersOption = Annotated[
    str | None,
    typer.Option(metavar=_BROKERS, help="Ask there how many records come after the newest batch."),
]

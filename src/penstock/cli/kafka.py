"""``penstock kafka``: topics, and how far queries, programs and groups are in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.kafka_conf import ConfOption, client_settings
from penstock.cli.kafka_readers import find_readers
from penstock.cli.options import BrokersOption, JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.kafka.brokers import PartitionFacts

T = TypeVar("T")

app = typer.Typer(
    name="kafka",
    no_args_is_help=True,
    help="Topics, and the offsets of queries, programs and groups.",
)

_NUMBERS = ("partition", "offset", "begin", "end", "written", "lag", "records")
_Location = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A checkpoint location of any query or program."),
]


@app.command("topics")
def topics(
    names: Annotated[list[str] | None, typer.Argument(help="Topics; all without any.")] = None,
    brokers: BrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    as_json: JsonOption = False,
) -> None:
    """Show where the records of topics begin and end."""
    from penstock.kafka.brokers import partition_facts

    facts = partition_facts(client_settings(brokers, conf), names or ())
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "begin": found.begin,
            "end": found.end,
            "written": found.written,
            "records": found.written - found.begin,
        }
        for (topic, partition), found in _by_place(facts)
    ]
    titles = ("topic", "partition", "begin", "end", "written", "records")
    _show(rows, titles, as_json=as_json)


@app.command("offsets")
def offsets(location: _Location, as_json: JsonOption = False) -> None:
    """Show the Kafka offsets that a location holds; no broker is asked."""
    rows = [
        {
            "source": reader.name,
            "topic": topic,
            "partition": partition,
            "offset": end,
            "at": reader.at,
        }
        for reader in find_readers(location)
        for (topic, partition), end in _by_place(reader.ends)
    ]
    _show(rows, ("source", "topic", "partition", "offset", "at"), as_json=as_json)


@app.command("lag")
def lag(
    location: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="A checkpoint location."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="A consumer group, instead of DIR.")] = None,
    brokers: BrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    as_json: JsonOption = False,
) -> None:
    """Show how far a query, program or group is behind its topics."""
    from penstock.kafka.brokers import group_offsets, partition_facts

    if (location is None) == (group is None):
        raise typer.BadParameter("give a location, or --group")
    settings = client_settings(brokers, conf)
    if location is not None:
        ends = {reader.name: reader.ends for reader in find_readers(location)}
    else:
        ends = {str(group): group_offsets(settings, str(group))}
        if not ends[str(group)]:
            raise ConfigError(
                f"there is no group {group!r} that has committed offsets",
                operation="show lag",
                ids={"group": str(group)},
                hint="give its whole name: that of a query with groupIdPrefix is <prefix>-<id>, "
                "and `kafka-consumer-groups.sh --list` has all",
            )
    names = [part.rpartition("/")[0] for parts in ends.values() for part in parts]
    facts = partition_facts(settings, names, may_be_gone=True) if names else {}
    rows = [
        _lag_row(name, topic, partition, end, facts.get(f"{topic}/{partition}"))
        for name, parts in ends.items()
        for (topic, partition), end in _by_place(parts)
    ]
    titles = ("source", "topic", "partition", "offset", "begin", "end", "written", "lag", "note")
    _show(rows, titles, as_json=as_json)
    if not as_json:
        print_line(f"lag in all: {sum(int(str(row['lag'])) for row in rows):,}")


def _lag_row(
    source: str, topic: str, partition: int, end: int, facts: PartitionFacts | None
) -> dict[str, object]:
    row: dict[str, object] = {"source": source, "topic": topic, "partition": partition}
    if facts is None:
        nothing = {"begin": "-", "end": "-", "written": "-", "lag": 0, "note": "not in Kafka"}
        return row | {"offset": end} | nothing
    note = ""
    if end < facts.begin:
        note = f"{facts.begin - end:,} records are gone"
    elif end > facts.end:
        note = "after the end: created again?"
    elif facts.written > facts.end:
        note = f"{facts.written - facts.end:,} behind a transaction that is open at {facts.end}"
    found = {"offset": end, "begin": facts.begin, "end": facts.end, "written": facts.written}
    return row | found | {"lag": facts.behind(end), "note": note}


def _by_place(parts: Mapping[str, T]) -> Iterator[tuple[tuple[str, int], T]]:
    """Yield topic, partition and value, in order."""
    places = {(p.rpartition("/")[0], int(p.rpartition("/")[2])): v for p, v in parts.items()}
    yield from sorted(places.items(), key=lambda item: item[0])


def _show(rows: list[dict[str, object]], titles: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    for line in table_lines(titles, ([row[t] for t in titles] for row in rows), right=_NUMBERS):
        print_line(line)

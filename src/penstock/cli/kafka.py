"""``penstock kafka``: topics, and how far queries, programs and groups are in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli.checkpoint_changes import parse_time, show_or_apply
from penstock.cli.checkpoint_path import refuse_batches
from penstock.cli.kafka_conf import ConfOption, client_settings
from penstock.cli.kafka_readers import find_readers, one_reader
from penstock.cli.options import (
    ApplyOption,
    BrokersOption,
    JsonOption,
    PlanJsonOption,
    TopicsOption,
)
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.kafka.records import YEARS_MS
from penstock.kafka.reset import PartitionFacts, Target, plan_moves, select
from penstock.kafka.reset_program import plan_reset
from penstock.model import Offsets

T = TypeVar("T")

app = typer.Typer(
    name="kafka",
    no_args_is_help=True,
    help="Topics, and the offsets of queries, programs and groups.",
)

_NUMBERS = ("partition", "offset", "begin", "end", "lag", "records", "batch")
_Location = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A checkpoint location of any query or program."),
]
_Source = Annotated[
    str | None, typer.Option(help="Which input or source, where there are several.")
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
        {"topic": t, "partition": p, "begin": f.begin, "end": f.end, "records": f.end - f.begin}
        for (t, p), f in _by_place(facts)
    ]
    _show(rows, ("topic", "partition", "begin", "end", "records"), as_json=as_json)


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
    titles = ("source", "topic", "partition", "offset", "begin", "end", "lag", "note")
    _show(rows, titles, as_json=as_json)
    if not as_json:
        print_line(f"lag in all: {sum(int(str(row['lag'])) for row in rows):,}")


@app.command("reset")
def reset(
    location: _Location,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="All that is kept.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Only what comes now.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="This offset.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help="Records from this time on: ISO 8601 (UTC), or ms.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Offsets to move each partition by; negative: back.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(help='A file of JSON such as {"clicks":{"0":5}}.')
    ] = None,
    topic: TopicsOption = [],  # noqa: B006 - typer copies it
    source: _Source = None,
    brokers: BrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Move a query or program to other offsets."""
    from penstock.kafka.brokers import topic_ids

    refuse_batches(location)
    settings = client_settings(brokers, conf)
    reader = one_reader(location, source)
    parts = select(reader.ends, topic)
    given = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--shift-by": shift_by,
        "--from-file": from_file,
    }
    _check_one(given)
    ends = {part: reader.ends[part] for part in parts}
    moves = plan_moves(ends, *_facts_and_target(settings, ends, given))
    assert reader.held is not None
    if not moves and as_json:
        print_json({"location": location, "moves": [], "applied": False})
    elif not moves:
        print_line(f"{location}: {reader.name} stands there already: there is nothing to change")
    else:
        if not as_json:
            for move in moves:
                print_line(f"  {move}")
        ids = topic_ids(settings, [move.partition.rpartition("/")[0] for move in moves])
        program_plan = plan_reset(location, reader.held, moves, ids)
        show_or_apply(program_plan, apply=apply, as_json=as_json)


def _facts_and_target(
    settings: Mapping[str, str], ends: Offsets, given: Mapping[str, Any]
) -> tuple[Mapping[str, PartitionFacts], Target]:
    from penstock.kafka.brokers import partition_facts

    topics = [part.rpartition("/")[0] for part in ends]
    facts = partition_facts(settings, topics, may_be_gone=True)
    to_datetime, from_file = given["--to-datetime"], given["--from-file"]
    target = Target(
        to_earliest=bool(given["--to-earliest"]),
        to_latest=bool(given["--to-latest"]),
        to_offset=given["--to-offset"],
        shift_by=given["--shift-by"],
        at_time=None if to_datetime is None else _at(settings, ends, to_datetime),
        from_file=None if from_file is None else _read_offsets(from_file),
    )
    return facts, target


def _at(settings: Mapping[str, str], parts: Iterable[str], text: str) -> Offsets:
    from penstock.kafka.brokers import offsets_at_time

    names = [part.rpartition("/")[0] for part in parts]
    time_ms = parse_time(text, "--to-datetime")
    if time_ms not in YEARS_MS:
        raise typer.BadParameter("it is not within the years 1 to 9999", param_hint="--to-datetime")
    return offsets_at_time(settings, names, time_ms)


def _read_offsets(path: str) -> dict[str, int]:
    try:
        with open(path, encoding="utf-8") as file:
            topics = json.load(file)
        return {f"{t}/{int(p)}": int(end) for t, ends in topics.items() for p, end in ends.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise typer.BadParameter(str(error), param_hint="--from-file") from error


def _check_one(given: Mapping[str, object]) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise ConfigError(
            "give exactly one point to continue from",
            operation="reset offsets",
            hint=f"one of {', '.join(given)}",
        )


def _lag_row(
    source: str, topic: str, partition: int, end: int, facts: PartitionFacts | None
) -> dict[str, object]:
    row: dict[str, object] = {"source": source, "topic": topic, "partition": partition}
    if facts is None:
        return row | {"offset": end, "begin": "-", "end": "-", "lag": 0, "note": "not in Kafka"}
    note = ""
    if end < facts.begin:
        note = f"{facts.begin - end:,} records are gone"
    elif end > facts.end:
        note = "after the end: created anew?"
    found = {"offset": end, "begin": facts.begin, "end": facts.end}
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

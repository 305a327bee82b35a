"""``penstock checkpoint adopt``: whose offsets there are to take over, and the command."""

from __future__ import annotations

import re
from typing import Annotated, Literal, cast

import typer

from penstock.batched.checkpoints import newest_checkpoint
from penstock.batched.inspection import is_checkpoint_path
from penstock.batched.kept import identified_ends
from penstock.batched.layout import LOGS
from penstock.batched.rewind import begun_rewind, waiting_topics
from penstock.cli.kafka_conf import ConfOption, client_settings
from penstock.cli.options import (
    NOT_YET,
    ApplyOption,
    CheckBrokersOption,
    NewLocationArgument,
    PlanJsonOption,
    TopicsOption,
)
from penstock.cli.output import print_json, print_line
from penstock.errors import ConfigError
from penstock.kafka.adopt import apply_adopt, plan_adopt
from penstock.kafka.held import held_offsets, identified
from penstock.kafka.identified import IdentifiedOffsets
from penstock.kafka.reset import select
from penstock.storage import Storage, open_existing

__all__ = ["adopt"]

_GRAPH = re.compile(r"checkpoint-[0-9]+(\.bk)?")
_OPERATION = "adopt Kafka offsets"


def adopt(
    target: NewLocationArgument,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="A checkpoint of Structured Streaming, of penstock, or of streamz.",
        ),
    ] = None,
    group: Annotated[str | None, typer.Option(help="A consumer group, instead of --from.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Which source of --from, where several read topics.")
    ] = None,
    topic: TopicsOption = [],  # noqa: B006 - typer copies it
    engine: Annotated[
        str, typer.Option("--as", help="For a program of penstock, or a query of spark.")
    ] = "penstock",
    name: Annotated[
        str | None,
        typer.Option(
            help="The new input's name=; for spark the source's number.", show_default="0"
        ),
    ] = None,
    brokers: CheckBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Begin a new location where another engine's reader of Kafka topics is."""
    if (origin is None) == (group is None):
        raise typer.BadParameter("give --from, or --group")
    if engine not in ("penstock", "spark"):
        raise typer.BadParameter("give penstock or spark", param_hint="--as")
    if name is None and engine == "penstock":
        raise typer.BadParameter("give the name= of the program's kafkaStream", param_hint="--name")
    settings = client_settings(brokers, conf) if brokers or conf else None
    words, ends = _of_group(group, settings) if group else _of_folder(str(origin), source)
    ends = ends.of(select(ends.ends, topic))
    if settings is not None:
        from penstock.kafka.brokers import check_topics_have

        ends = check_topics_have(settings, ends)
    as_engine = cast("Literal['penstock', 'spark']", engine)
    plan = plan_adopt(words, ends, target, engine=as_engine, name=name or "0")
    if not as_json:
        print_line(f"{plan.target}: adopt {plan.origin}")
        for part, end in ends.ends.items():
            print_line(f"  {part} from {end}")
        for sentence in plan.meaning:
            print_line(f"- {sentence}")
    location_id = apply_adopt(plan) if apply else None
    if as_json:
        print_json({"plan": plan, "applied": apply, "id": location_id})
    elif apply:
        print_line(f"done: {plan.target} has id {location_id}")
    else:
        print_line(NOT_YET)


def _of_group(group: str, settings: dict[str, str] | None) -> tuple[str, IdentifiedOffsets]:
    from penstock.kafka.brokers import group_offsets

    if settings is None:
        raise typer.BadParameter("name the brokers of the group", param_hint="--brokers")
    ends = IdentifiedOffsets(group_offsets(settings, group), {})
    return f"group {group} of {settings['bootstrap.servers']}", ends


def _of_folder(place: str, source: str | None) -> tuple[str, IdentifiedOffsets]:
    storage = open_existing(place, operation=_OPERATION, hint="give a checkpoint's folder")
    entries = {entry.name: entry.is_folder for entry in storage.list()}
    if "offsets" in entries and not is_checkpoint_path(place):
        return _of_checkpoint(storage, source)
    if any(_GRAPH.fullmatch(name) for name in entries):
        raise ConfigError(
            "it is a graph checkpoint of pyspark.streaming: its offsets are in Java objects of the "
            "program's own classes, which are not read here",
            operation=_OPERATION,
            path=place,
            hint="if the program committed offsets to a group, --group takes them; otherwise print "
            "rdd.offsetRanges() in its last batches, and begin there (starting=)",
        )
    if begun_rewind(storage) is not None:
        raise ConfigError(
            "a rewind of it was begun and is not complete",
            operation=_OPERATION,
            path=place,
            hint="repeat the rewind, or start its program",
        )
    if waiting := sorted(waiting_topics(storage)):
        raise ConfigError(
            f"a batch with records of {', '.join(waiting)} waits for its exactly-once sinks: which "
            "of these are written is not known, and all would be read again",
            operation=_OPERATION,
            path=place,
            hint="start its program once; or drop the batch by `penstock checkpoint rewind`",
        )
    topics = [name for name, is_folder in entries.items() if is_folder]
    found = {topic: newest_checkpoint(storage, topic) for topic in topics if topic != LOGS}
    return storage.url, identified_ends({t: each for t, each in found.items() if each is not None})


def _of_checkpoint(storage: Storage, source: str | None) -> tuple[str, IdentifiedOffsets]:
    found = held_offsets(storage.url, done=True)
    chosen = [held for held in found if source in (None, held.name)]
    if not found:
        raise ConfigError(
            "no source reads Kafka topics in the newest batch that is done",
            operation=_OPERATION,
            path=storage.url,
            hint="`penstock checkpoint inspect` shows what the sources are",
        )
    if len(chosen) != 1:
        known = ", ".join(held.name for held in found)
        raise ConfigError(
            f"{len(chosen)} sources read Kafka topics in the newest batch that is done, not 1",
            operation=_OPERATION,
            path=storage.url,
            hint=f"give --source with one of: {known}",
        )
    return storage.url, identified(storage.url, chosen[0])

r"""``adopt``: a new checkpoint location that begins where another engine's reader of topics is.

    metadata                     {"id":"<uuid>"}
    sources/<name>/topics/0.json {"clicks": ["<id>"]}
    sources/<name>/0             v1\n{"clicks":{"0":246189}}

This is what a program leaves that was started and has planned no batch yet: its first batch begins
there, exactly. Spark's Kafka source reads the same file as its initial offsets (``sources/0/0``,
with a zero byte before it, as Spark 2.1 wanted it). The ids of topics come along, as far as they
are known (penstock.kafka.generations); Spark's source keeps none.

Invariant: the target is new, and is filled as a whole, or no query starts on it
(penstock.checkpoint.tools.changes.fill). Nothing of the origin is changed, so what takes it back is
to delete the target.

Source: KafkaSourceInitialOffsetWriter; penstock.checkpoint.first_offsets.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.log_format import dump_json, encode_log
from penstock.checkpoint.tools.changes.fill import check_free, fill_location
from penstock.checkpoint.tools.checkpoint import parse_id
from penstock.checkpoint.tools.checks.checksums import sidecar_of
from penstock.checkpoint.tools.reading import read_files
from penstock.errors import ConfigError
from penstock.kafka.generations import first_entry
from penstock.kafka.identified import IdentifiedOffsets
from penstock.kafka.offsets import TopicOffsets, split_name, to_json
from penstock.model import check_name
from penstock.storage import attach_storage, local_root

__all__ = ["AdoptPlan", "apply_adopt", "plan_adopt"]

_METADATA = "metadata"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class AdoptPlan:
    """What the new location begins with."""

    origin: str
    """Whose offsets they are: a location's URL, or a group with its brokers."""
    target: str
    engine: Literal["penstock", "spark"]
    name: str
    """The input's name; of Spark's sources the number."""
    offset: TopicOffsets
    ids: dict[str, str]
    """The topics' ids, which the program compares with the brokers'."""
    meaning: tuple[str, ...]


def plan_adopt(
    origin: str,
    ends: IdentifiedOffsets,
    target: str | os.PathLike[str],
    *,
    engine: Literal["penstock", "spark"] = "penstock",
    name: str = "0",
) -> AdoptPlan:
    """Plan a location whose only reader of topics begins at offsets.

    Args:
        origin: whose they are; the same call completes a change that was cut off.
        ends: where each partition begins.
        target: the new location.
        engine: for whom it is.
        name: the input's name (``name=`` of ``kafkaStream``); for Spark the source's number.

    Raises:
        ConfigError: the target is not empty, the name is not allowed, or there are no offsets.
    """
    check_name("stream", name)
    if not ends.ends:
        raise ConfigError(
            "there are no offsets to take over",
            operation="adopt Kafka offsets",
            path=origin,
            hint="`penstock kafka offsets` shows what a location holds",
        )
    storage = attach_storage(target)
    check_free(storage, origin)
    if engine == "spark":
        reader = f"a query of Spark whose source {name} is format('kafka') begins there"
        unread = "startingOffsets is not read, and a topic that is created anew is not noticed"
    else:
        reader = f"a program with kafkaStream(..., name={name!r}) begins there"
        unread = "starting= is not read"
    topics = sorted({split_name(part)[0] for part in ends.ends})
    unknown = [topic for topic in topics if topic not in ends.ids]
    noted = (
        f"the id of {', '.join(unknown)} is not known (--brokers): that of the program's first "
        "start counts",
    )
    meaning = (
        f"{reader}; {unread}",
        *(noted if unknown and engine == "penstock" else ()),
        "stop the other engine first: what it reads after these offsets is read again",
        "state, windows, watermark and settings are not taken over",
        f"nothing of {origin} is changed; to take it back, delete {storage.url}",
    )
    ids = {topic: ends.ids[topic] for topic in topics if topic in ends.ids}
    return AdoptPlan(origin, storage.url, engine, name, to_json(ends.ends), ids, meaning)


def apply_adopt(plan: AdoptPlan) -> str:
    """Create the location; return its id.

    Raises as ``fill_location``; the same call completes what was cut off.
    """
    begun = read_files(attach_storage(plan.target), [_METADATA]).get(_METADATA)
    location_id = parse_id(begun) or str(uuid.uuid4())
    fill_location(plan.target, plan.origin, _files(plan, location_id))
    return location_id


def _files(plan: AdoptPlan, location_id: str) -> Iterator[tuple[str, bytes]]:
    entry = encode_log(_VERSION, [dump_json(plan.offset)])
    if plan.engine == "penstock" and plan.ids:
        yield first_entry(plan.name, plan.ids)
    files = {
        _METADATA: dump_json({"id": location_id}).encode(),
        f"sources/{plan.name}/0": b"\0" + entry if plan.engine == "spark" else entry,
    }
    for path, data in files.items():
        yield path, data
        if local_root(plan.target) is not None:
            yield sidecar_of(path), checksum_of(data)

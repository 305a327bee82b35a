"""What the brokers remember of an output's batches: offsets of consumer groups. Pure.

    group and transactional id          offset          metadata
    ----------------------------------  --------------  ------------------------------------------
    penstock/<location>/<output>        batch begun +1  {"attempt": 7, "partitions": 4,
                                                        "driver": .., "plan": ..}
    penstock/<location>/<output>/<i>    batch done +1   {"attempt": 7, "count": .., "checksum": ..,
                                                        "writer": ..}

Each is the offset of partition 0 of the sink's topic. Names of outputs have no slash, so no two
outputs share one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from penstock.errors import ConfigError, KafkaError


@dataclass(frozen=True, slots=True)
class Begun:
    """The newest batch that an output began to write."""

    next_id: int
    """The batch's id, plus one."""
    attempt: int
    """Counts the attempts at all batches; a later one supersedes all earlier ones."""
    partitions: int
    driver: str = ""
    """The driver that wrote it, so that one whose commit was not answered knows its own."""
    plan: str = ""
    """The batch's (OutputBatch); empty if it was begun without one."""


@dataclass(frozen=True, slots=True)
class Done:
    """Up to which batch a sink partition is written."""

    next_id: int
    """Batches before it are written."""
    attempt: int
    """The attempt that wrote it, or that claimed the partition."""
    count: int = 0
    """The number of records of the newest batch."""
    checksum: int = 0
    """``Tally.checksum`` of these."""
    writer: str = ""
    """The producer that wrote it."""


Token = TypeVar("Token", Begun, Done)


def batch_name(location_id: str, output: str) -> str:
    """Return the group and transactional id of an output.

    Raises:
        ConfigError: its name has a slash.
    """
    if "/" in output:
        raise ConfigError(
            f"output name {output!r} is not possible: its tokens would be those of another output",
            operation="write to Kafka",
            hint="give a name without a slash",
        )
    return f"penstock/{location_id}/{output}"


def partition_name(name: str, index: int) -> str:
    """Return the group and transactional id of a partition of an output."""
    return f"{name}/{index}"


def to_metadata(token: Begun | Done) -> str:
    """Return a token without its offset."""
    facts = asdict(token)
    del facts["next_id"]
    return json.dumps(facts, separators=(",", ":"))


def from_metadata(kind: type[Token], offset: int, metadata: str | None, group: str) -> Token:
    """Return the token of a group's offset.

    Raises:
        KafkaError: it is none.
    """
    try:
        facts: dict[str, Any] = json.loads(metadata or "")
        return kind(offset, **facts)
    except (TypeError, ValueError):
        raise KafkaError(
            f"offset {offset} of a sink's group is not a token: {metadata!r}",
            operation="read token of sink",
            ids={"group": group},
            hint="do not commit to groups that begin with penstock/; to continue, go back to a "
            "batch that is done with `penstock checkpoint rewind`",
        ) from None

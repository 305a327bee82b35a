"""Positions beyond the end of a partition: the log was cut off, or it only looks so.

So with topics that do not exist any more, or that have another id.

With ``read_committed`` a partition ends before its first open transaction. A stream that read it
without that setting before may be beyond this end until the transaction ends. And a broker that has
just become the leader, or is no longer, may name an earlier end for a moment (KIP-207; Spark asks
again, too: SPARK-26267).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set

from penstock.errors import KafkaDataLossError
from penstock.kafka.offsets import TopicIds
from penstock.kafka.topics import Topics
from penstock.model import Offsets

SURE_S = 5.0
"""An end before a position is believed when the brokers name such ends for so long."""
_PAUSE_S = 0.5


def settle(topics: Topics, positions: Offsets, ends: Offsets) -> Offsets:
    """Return the ends to plan with: before a position only where the log was cut off.

    Args:
        topics: to ask again.
        positions: up to where partitions were read, or passed over.
        ends: where they end, as the brokers said just now.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    beyond = {name: at for name, at in positions.items() if name in ends and at > ends[name]}
    cut = cut_off(topics, beyond) if beyond else set()
    return {**ends, **{name: at for name, at in beyond.items() if name not in cut}}


def cut_off(topics: Topics, positions: Offsets) -> Set[str]:
    """Return the partitions that end before their positions; takes ``SURE_S`` if there are some.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    cut, began_s = set(positions), time.monotonic()
    while True:
        ends = topics.written_ends(cut)
        cut = {name for name in cut if positions[name] > ends[name]}
        if not cut or time.monotonic() - began_s >= SURE_S:
            return cut
        time.sleep(_PAUSE_S)


def is_deleted(topics: Topics, topic: str) -> bool:
    """Return whether a topic does not exist; takes ``SURE_S`` if so.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    began_s = time.monotonic()
    while topic not in topics.ids(may_be_gone={topic}):
        if time.monotonic() - began_s >= SURE_S:
            return True
        time.sleep(_PAUSE_S)
    return False


def check_ids(topics: Topics, planned: Mapping[str, str], now: TopicIds) -> None:
    """Check that topics are those of a plan; takes ``SURE_S`` if one is not.

    A broker that is behind may name the id of an earlier topic for a moment.

    Args:
        topics: to ask again.
        planned: the ids beside the plan's offsets.
        now: the ids that the brokers have.

    Raises:
        KafkaDataLossError: a topic was deleted and created again.
        KafkaError: the brokers do not answer, or refuse.
    """
    began_s = time.monotonic()
    while other := [t for t, known in sorted(planned.items()) if now.get(t) not in (None, known)]:
        if time.monotonic() - began_s >= SURE_S:
            raise _created_again(other[0], planned[other[0]], str(now[other[0]]))
        time.sleep(_PAUSE_S)
        now = topics.ids(may_be_gone=planned.keys())


def _created_again(topic: str, planned: str, now: str) -> KafkaDataLossError:
    return KafkaDataLossError(
        f"topic {topic} was deleted and created again: the offsets in the checkpoint are of the "
        f"topic with id {planned}, and it has id {now} now, with other records at these offsets",
        operation="check topics",
        ids={"topic": topic, "id": planned, "new_id": now},
        hint="start with a new checkpoint location; or say where the new topic is read from (all "
        "partitions of the source; its loss log has to be empty): penstock checkpoint rewind DIR "
        f'--to-offsets \'{{"SOURCE":{{"{topic}":{{"0":0}}}}}}\' --apply',
    )

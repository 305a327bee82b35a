"""Positions beyond the end of a partition: the log was cut off, or it only looks so.

With ``read_committed`` a partition ends before its first open transaction. A stream that read it
without that setting before may be beyond this end until the transaction ends. And a broker that has
just become the leader, or is no longer, may name an earlier end for a moment (KIP-207; Spark asks
again, too: SPARK-26267).
"""

from __future__ import annotations

import time

from penstock.errors import KafkaError
from penstock.kafka.topics import Topics
from penstock.model import Offsets

__all__ = ["SURE_S", "CutOffs"]

SURE_S = 5.0
"""An end before a position is believed when the brokers have named such ends for so long."""


class CutOffs:
    """Judges the ends of topics that a stream follows. Not thread-safe."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._since_s: float | None = None

    def settle(self, positions: Offsets, ends: Offsets) -> Offsets:
        """Return the ends to plan with: not before a position that waits for a transaction.

        Args:
            positions: up to where partitions were read, or passed over.
            ends: where they end.

        Raises:
            KafkaError: one ends before its position, and has not for ``SURE_S``: to be asked again;
                or the brokers do not answer, or refuse.
        """
        beyond = {n: at for n, at in positions.items() if n in ends and at > ends[n]}
        written = self._topics.written_ends(beyond) if beyond else {}
        waiting = {name: at for name, at in beyond.items() if at <= written[name]}
        if len(waiting) == len(beyond):
            self._since_s = None
        else:
            self._check_sure(min(beyond.keys() - waiting.keys()), positions, ends)
        return {**ends, **waiting}

    def _check_sure(self, name: str, positions: Offsets, ends: Offsets) -> None:
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s < SURE_S:
            raise KafkaError(
                f"{name} ends at {ends[name]}, before {positions[name]}, up to which it was read",
                operation="plan batch",
                ids={"partition": name},
                hint=f"nothing for now: the brokers are asked again for {SURE_S:g} s",
            )

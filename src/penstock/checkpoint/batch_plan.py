"""Which run planned a batch, and when: what tells it from another one of its id. Pure.

An id is planned once by a run. It is planned by another run, too, where a checkpoint location was
restored from an older copy, or its newest entries were removed: that batch has other records.
"""

from __future__ import annotations

from penstock.checkpoint.offset_log import OffsetSeq

RUN = "spark.penstock.run"
"""The run, in the conf of the batch's entry."""


def plan_of(entry: OffsetSeq) -> str:
    """Return the plan of a batch, by its entry in the offset log: for OutputBatch."""
    return f"{entry.conf.get(RUN, '')}-{entry.batch_timestamp_ms}"

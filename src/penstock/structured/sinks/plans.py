"""Whether a batch that a sink has is the one that is to be written. Pure.

A batch id alone does not tell: a checkpoint location that was restored from an older copy gives ids
again that a sink has, to other records.
"""

from __future__ import annotations

from penstock.errors import SinkError
from penstock.model import OutputBatch

__all__ = ["check_same"]


def check_same(output: OutputBatch, plan: str, where: str) -> None:
    """Check that a batch which a sink has is the one that is to be written.

    Args:
        output: the one to be written.
        plan: that of the one that the sink has; empty if it is not known.
        where: the sink, for the message.

    Raises:
        SinkError: they have one id, and were planned apart.
    """
    if plan and output.plan and plan != output.plan:
        raise SinkError(
            f"batch {output.batch_id} of output {output.output!r} is written already, with other "
            "records: the checkpoint location was restored from an older copy, or another run of "
            "the query has overtaken this one",
            operation="write batch",
            path=where,
            ids={"output": output.output, "batch": output.batch_id},
            hint="only one run may write here; after a restore: restore the newest copy, or remove "
            "from the sink what was written since, and start there with a new location",
        )

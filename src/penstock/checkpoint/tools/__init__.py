"""What ``penstock checkpoint`` prints, as functions that return plain values.

They read the location of any Structured Streaming query (Spark 2.1 and later) or penstock program,
running or not, need no permission to write there, and change nothing.
"""

from penstock.checkpoint.tools.batches import Problem
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.inspection import (
    BatchFacts,
    Inspection,
    OperatorFacts,
    SourceFacts,
    inspect,
    iso_time,
)
from penstock.checkpoint.tools.next_batch import NextBatch

__all__ = [
    "BatchFacts",
    "Checkpoint",
    "Inspection",
    "NextBatch",
    "OperatorFacts",
    "Problem",
    "SourceFacts",
    "inspect",
    "iso_time",
]

"""What ``penstock checkpoint`` prints, as functions that return plain values.

They read the location of any Structured Streaming query (Spark 2.1 and later) or penstock program,
running or not, need no permission to write there, and change nothing; but for ``apply_...``, which
do what a plan of the others says.
"""

from penstock.checkpoint.tools.batches import Problem
from penstock.checkpoint.tools.changes.apply import apply_plan, plan_undo
from penstock.checkpoint.tools.changes.available import TopicCheck
from penstock.checkpoint.tools.changes.fork import ForkPlan, apply_fork, plan_fork
from penstock.checkpoint.tools.changes.plan import FileChange, Plan, plan_fields
from penstock.checkpoint.tools.changes.rewind import plan_promote, plan_rewind
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.differences import (
    BatchDiff,
    Change,
    LocationDiff,
    diff_batches,
    diff_locations,
)
from penstock.checkpoint.tools.findings import Finding, Severity, worst
from penstock.checkpoint.tools.inspection import (
    BatchFacts,
    Inspection,
    OperatorFacts,
    SourceFacts,
    inspect,
    iso_time,
)
from penstock.checkpoint.tools.last_state import LastState, last_state
from penstock.checkpoint.tools.next_batch import NextBatch
from penstock.checkpoint.tools.validation import Validation, validate

__all__ = [
    "BatchDiff",
    "BatchFacts",
    "Change",
    "Checkpoint",
    "FileChange",
    "Finding",
    "ForkPlan",
    "Inspection",
    "LastState",
    "LocationDiff",
    "NextBatch",
    "OperatorFacts",
    "Plan",
    "Problem",
    "Severity",
    "SourceFacts",
    "TopicCheck",
    "Validation",
    "apply_fork",
    "apply_plan",
    "diff_batches",
    "diff_locations",
    "inspect",
    "iso_time",
    "last_state",
    "plan_fields",
    "plan_fork",
    "plan_promote",
    "plan_rewind",
    "plan_undo",
    "validate",
    "worst",
]

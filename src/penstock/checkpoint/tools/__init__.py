"""What ``penstock checkpoint`` prints, as functions that return plain values.

They read the location of any Structured Streaming query (Spark 2.1 and later) or penstock program,
running or not, need no permission to write there, and change nothing; but for ``apply_...``, which
do what a plan of the others says.
"""

from penstock.checkpoint.tools.batches import Problem
from penstock.checkpoint.tools.changes.apply import apply_plan, plan_undo
from penstock.checkpoint.tools.changes.archive import (
    ImportPlan,
    apply_import,
    export_location,
    plan_import,
)
from penstock.checkpoint.tools.changes.available import TopicCheck
from penstock.checkpoint.tools.changes.evidence import describe_evidence
from penstock.checkpoint.tools.changes.fork import ForkPlan, apply_fork, plan_fork
from penstock.checkpoint.tools.changes.plan import FileChange, Plan, plan_fields
from penstock.checkpoint.tools.changes.repair import plan_repair, repairable_files
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
    "ImportPlan",
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
    "apply_import",
    "apply_plan",
    "describe_evidence",
    "diff_batches",
    "diff_locations",
    "export_location",
    "inspect",
    "iso_time",
    "last_state",
    "plan_fields",
    "plan_fork",
    "plan_import",
    "plan_promote",
    "plan_repair",
    "plan_rewind",
    "plan_undo",
    "repairable_files",
    "validate",
    "worst",
]

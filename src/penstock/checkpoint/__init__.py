"""The two-log protocol: offsets (planned) and commits (done), in Spark's format."""

from penstock.checkpoint.commit_log import CommitLog, CommitMetadata
from penstock.checkpoint.location import CheckpointLocation
from penstock.checkpoint.offset_log import OffsetLog, OffsetSeq
from penstock.checkpoint.recovery import RecoveryCase, RecoveryPlan, plan_recovery

__all__ = [
    "CheckpointLocation",
    "CommitLog",
    "CommitMetadata",
    "OffsetLog",
    "OffsetSeq",
    "RecoveryCase",
    "RecoveryPlan",
    "plan_recovery",
]

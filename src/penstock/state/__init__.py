"""Keyed state at scale: versions of it on the storage, copies of it on executors' disks.

    driver      VersionLog: version N names the newest delta of each partition
    executors   Partition: reads version N-1, commits delta N; tasks.py is what Spark runs
    files       delta, pack, snapshot: state_file (form), delta (content), layers (when to merge)
    local       database (SQLite) and local_copies (who may use which)

docs/state.md has the guarantees and the layout of the files.
"""

from penstock.state.handle import State
from penstock.state.keys import decode_key, encode_key, partition_of
from penstock.state.layout import new_run
from penstock.state.partition import Partition
from penstock.state.tasks import LoadTask, OutputsTask, SnapshotTask, StatePlace, UpdateTask
from penstock.state.update import update_partition
from penstock.state.versions import (
    PartitionVersion,
    Version,
    VersionLog,
    read_version,
    version_times,
)

__all__ = [
    "LoadTask",
    "OutputsTask",
    "Partition",
    "PartitionVersion",
    "SnapshotTask",
    "State",
    "StatePlace",
    "UpdateTask",
    "Version",
    "VersionLog",
    "decode_key",
    "encode_key",
    "new_run",
    "partition_of",
    "read_version",
    "update_partition",
    "version_times",
]

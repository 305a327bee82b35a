"""The way out of a damaged offset log without a backup: back to the batch before the damage.

A program continues from the newest entry of its offset log. Without the entries of batch N and of
all later ones, in both logs, it continues from the end of batch N-1: batch N is planned anew under
its id, and takes what came since. So batch N-1 must have an entry.

Batches that are done run again after ``penstock checkpoint rewind``, which creates the file
``rewound``. A driver removes it before it runs one of them: from then on there is no undo.
"""

from __future__ import annotations

import shlex

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.storage import Storage
from penstock.storage.urls import local_root

REWOUND = "rewound"
"""In the checkpoint location."""

START_ELSEWHERE = (
    "start with a new checkpoint location (acked records stay in this location's folder journal; "
    "docs/bad-records.md says how to process them)"
)
"""What is left to do where there is no way back; ends a hint."""


def rollback_hint(storage: Storage, batch_id: int) -> str | None:
    """Return how to go back to the batch before ``batch_id``, None when that cannot be done."""
    offsets, commits = (_batch_ids(storage, folder) for folder in ("offsets", "commits"))
    if batch_id - 1 not in offsets:
        return None
    last_id = max(offsets | commits)
    return (
        f"without a backup, go back to batch {batch_id - 1}: end the program, "
        f"{_removal(storage, batch_id, last_id)}, and start it again. Batches from {batch_id} on "
        "are then planned under their ids again, with other records; exactly-once sinks refuse "
        "those that they have, and a sink of your own that skips ids leaves them out. The start "
        "names the state that must go as well, if there is some"
    )


def _removal(storage: Storage, first_id: int, last_id: int) -> str:
    root = local_root(storage.url)
    if root is None:
        return f"delete the entries {first_id} to {last_id} from offsets/ and commits/"
    files = "offsets/$n offsets/.$n.crc commits/$n commits/.$n.crc"
    here = shlex.quote(root.rstrip("/"))
    return f"run `cd {here} && for n in $(seq {first_id} {last_id}); do rm -f {files}; done`"


def _batch_ids(storage: Storage, folder: str) -> set[int]:
    ids = (parse_batch_id(entry.name) for entry in storage.list(folder) if not entry.is_folder)
    return {batch_id for batch_id in ids if batch_id is not None}

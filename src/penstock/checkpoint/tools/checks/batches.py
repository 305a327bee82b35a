"""Whether the entries of the two logs fit each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from penstock.checkpoint.batch_ids import describe_files, find_gaps
from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.findings import Finding
from penstock.checkpoint.tools.next_batch import NextBatch, lacks_start, leaves_out
from penstock.clock import iso_time


def check_ids(
    planned: Collection[int],
    committed: Collection[int],
    following: NextBatch,
    *,
    is_penstock: bool,
    way_back: str | None,
    left: Collection[int] = (),
) -> Iterator[Finding]:
    """Yield what is missing from the logs; ``following`` says whether a start is possible.

    ``way_back`` says how a penstock program goes back to before what is missing; ``left`` are the
    batches from which a query was taken back (``left_behind``).
    """
    if following.problem is not None:
        restart = START_ELSEWHERE if is_penstock else "start with a new checkpoint location"
        restart = f"{restart}; {way_back}" if way_back else restart
        yield Finding(
            "error",
            "offsets",
            following.problem,
            "the query does not start, or does not know where its next batch begins",
            f"restore the file from a backup, or {restart}",
        )
    elif lacks_start(planned) and not is_penstock:
        yield Finding(
            "warning",
            describe_files("offsets", find_gaps(planned)),
            "entries are missing before the newest",
            f"the query starts only with asynchronous progress tracking, which leaves out entries;"
            f" any other fails (batch {max(planned) - 1} doesn't exist)",
            "if the program does not set asyncProgressTrackingEnabled, restore the files from a"
            " backup, or start with a new checkpoint location",
        )
    elif gaps := find_gaps(planned):
        yield Finding(
            "note" if leaves_out(planned, committed) else "warning",
            describe_files("offsets", gaps),
            "entries are missing between others",
            "the query starts, and cannot go back to these batches; with asynchronous progress"
            " tracking it leaves out entries",
            "restore the files from a backup if you want to go back to them",
        )
    # What is not planned any more was retired, and its commit is about to be.
    waiting = sorted(set(planned) - set(committed))
    newest = max(planned, default=-1)
    lost = [batch_id for batch_id in waiting if batch_id != newest]
    if is_penstock:
        return
    if undone := [batch_id for batch_id in lost if batch_id in left]:
        yield Finding(
            "note",
            describe_files("commits", _ranges(undone)),
            "batches before a rewind or promote have no commit",
            "the query was killed during them and then rewound, which skips them",
            "nothing; what their sink has of them was written once",
        )
    if lost := [batch_id for batch_id in lost if batch_id not in left]:
        yield Finding(
            "warning",
            describe_files("commits", _ranges(lost)),
            "older batches than the newest have no commit",
            "Spark runs only the newest batch again; the commits of the others were lost, or the"
            " logs were changed by hand",
            "check in the sink that the output of these batches is there",
        )


def left_behind(batches: Sequence[Batch]) -> frozenset[int]:
    """Return the batches after which a rewind or promote appended others."""
    steps = zip(batches, batches[1:], batches[2:], strict=False)
    return frozenset(last.batch_id for last, *pair in steps if are_appended(*pair))


def check_clocks(batches: Sequence[Batch]) -> Iterator[Finding]:
    """Yield where times run back from one batch to the next."""
    for earlier, later, following in zip(batches, batches[1:], [*batches[2:], None], strict=False):
        path = f"offsets/{later.batch_id}"
        if _ran_back(earlier.time_ms, later.time_ms):
            yield Finding(
                "warning",
                path,
                f"its time {_when(later.time_ms)} is before that of batch {earlier.batch_id}, "
                f"{_when(earlier.time_ms)}",
                "the driver's clock ran back, or drivers on two machines took turns; timeouts in"
                " processing time come late",
                "synchronize the clocks of the machines that drive the query",
            )
        if _ran_back(earlier.watermark_ms, later.watermark_ms):
            what = (
                f"its watermark {_when(later.watermark_ms)} is before that of batch "
                f"{earlier.batch_id}, {_when(earlier.watermark_ms)}"
            )
            if following is not None and are_appended(later, following):
                yield Finding(
                    "note",
                    path,
                    what,
                    "the query went back with its state: a rewind or promote appended this batch",
                    "nothing",
                )
            else:
                yield Finding(
                    "warning",
                    path,
                    what,
                    "Spark's watermarks only grow: an entry was altered, or the query went back;"
                    " windows that were closed may be written again",
                    "compare with a backup; after going back on purpose, nothing",
                )


def check_sources(batches: Sequence[Batch]) -> Iterator[Finding]:
    """Yield where the sources are not those of the batch before."""
    known = [each for each in batches if each.end_offsets]
    for earlier, later in pairwise(known):
        if not _have_same_sources(earlier, later):
            yield Finding(
                "warning",
                f"offsets/{later.batch_id}",
                f"it has the sources {_names(later)}; batch {earlier.batch_id} had "
                f"{_names(earlier)}",
                "the program's sources were changed, or the file was cut off: Spark matches them"
                " by their order",
                "compare with the program's sources; restore the file from a backup if it was cut",
            )


def are_appended(batch: Batch, following: Batch) -> bool:
    """Whether a rewind appended two batches: of one time and end, as no two that Spark planned."""
    return batch.time_ms == following.time_ms and batch.end_offsets == following.end_offsets


def _when(time_ms: int | None) -> str:
    return "unknown" if time_ms is None else iso_time(time_ms)


def _ran_back(earlier: int | None, later: int | None) -> bool:
    return earlier is not None and later is not None and later < earlier


def _have_same_sources(earlier: Batch, later: Batch) -> bool:
    """Whether two batches have the same sources; of two versions that is not known."""
    assert earlier.offsets is not None
    assert later.offsets is not None
    if earlier.offsets.version != later.offsets.version:
        return True
    return set(earlier.end_offsets) == set(later.end_offsets)


def _names(batch: Batch) -> str:
    return ", ".join(batch.end_offsets) or "none"


def _ranges(batch_ids: Sequence[int]) -> list[range]:
    """Return ascending ids as ranges."""
    ranges: list[range] = []
    for batch_id in batch_ids:
        if ranges and ranges[-1].stop == batch_id:
            ranges[-1] = range(ranges[-1].start, batch_id + 1)
        else:
            ranges.append(range(batch_id, batch_id + 1))
    return ranges

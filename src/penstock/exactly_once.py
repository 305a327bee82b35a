"""The contract of sinks that write each batch once: what every sink and both front ends share.

    front end   each batch has an OutputBatch: its token (location, output, batch id), and its plan
                (which run planned it, and when), which is in the batch's entry of the offset log
    sink        begin_write, before it looks at anything
                newest := the newest batch that it holds of the output, and its plan
                a later one? SinkError. This one or an earlier one? check_plan
                this one? check_once, and end: it is written
                in one step that only one attempt can take: the records, and
                newest := this batch, its plan, new_write

Invariants:

1. A batch is written once, however often and wherever it runs: with its plan, it is the same batch.
2. A sink skips a batch only if it holds one with the same token and the same plan.
3. Ids of an output only grow, and each follows on batches of its own location: where a location was
   restored from an older copy, what the sink holds is not in the location's log.
4. A run writes a batch of an output to a sink once: a second write has other records. The sink is
   known by what it holds (new_write), which is the same through each link, URL, host or name of it.
5. Nothing runs with a sink by which a batch could be passed over: no batches at once, no failed one
   left behind (``check_exactly_once``). A run refuses that before its first write.

tests/structured/exactly_once_suite.py tests a sink; docs/adr/0020 says why.
"""

from __future__ import annotations

import secrets
import threading
from typing import Protocol

from penstock.errors import ConfigError, SinkError
from penstock.model import OutputBatch

__all__ = [
    "Run",
    "begin_write",
    "check_once",
    "check_output",
    "check_plan",
    "enter_run",
    "leave_run",
    "new_write",
]


class Run(Protocol):
    """A run of a program or query, as sinks see it."""

    def use_sink(self, output: str, sink: str) -> None:
        """Take note, durably, that an output writes to a sink exactly once; may be repeated.

        Raises:
            ConfigError: the run could pass a batch over.
            StorageError: it cannot be noted.
        """

    def plan_of(self, batch_id: int) -> str | None:
        """Return the plan of a batch in the location's log, None if the log does not have it."""


_runs: dict[tuple[str, str], Run] = {}
"""By location and run: an application may run several programs."""
_writes: dict[tuple[str, str], tuple[str, int, set[str]]] = {}
"""By location and output: its newest run and batch, and that batch's writes that the run began, or
found in a sink."""
_lock = threading.Lock()


def enter_run(location_id: str, run_id: str, run: Run) -> None:
    """Make a run known to sinks, by what its batches have; it may be known already."""
    _runs.setdefault((location_id, run_id), run)


def leave_run(location_id: str, run_id: str) -> None:
    """Forget a run that has ended."""
    _runs.pop((location_id, run_id), None)


def begin_write(output: object, sink: str) -> None:
    """Begin to write a batch: a sink calls this first.

    Args:
        output: the batch.
        sink: the sink, for messages; without a password.

    Raises:
        ConfigError: ``output`` is none or has no plan, or the run could pass a batch over.
        StorageError: it cannot be noted in the checkpoint location that the sink is used.
    """
    batch = check_output(output)
    if not batch.plan:
        raise ConfigError(
            f"batch {batch.batch_id} of output {batch.output!r} has no plan, by which a sink tells "
            "it from another batch with its id",
            operation="write batch",
            path=sink,
            ids={"output": batch.output, "batch": batch.batch_id},
            hint="pass on the OutputBatch that the front end gives; in one of your own, give plan= "
            "a text that is the same whenever this batch runs, such as when it was planned",
        )
    run = _runs.get((batch.location_id, batch.run))
    if run is not None:
        run.use_sink(batch.output, sink)


def new_write(output: OutputBatch) -> str:
    """Return a text that no other write has, for the sink to store with the batch.

    It is called before each attempt at a batch, and ``check_once`` knows it from then on.
    """
    write = secrets.token_hex(8)
    _is_known(output, write)
    return write


def check_once(output: OutputBatch, write: str, sink: str) -> None:
    """Check a batch that a sink holds, with the same plan: an earlier run has written it.

    Args:
        output: the batch.
        write: what the sink has stored with it.
        sink: the sink, for messages.

    Raises:
        SinkError: this run has written it, or has found it there before. What is to be written now
            has other records, which would be lost.
    """
    if output.run and _is_known(output, write):
        raise SinkError(
            f"output {output.output!r} has written batch {output.batch_id} already in this run, so "
            "the records of a second write are not written",
            operation="write batch",
            path=sink,
            ids={"output": output.output, "batch": output.batch_id},
            hint="give each write of a batch to one folder or table an output of its own: "
            'sink.write(df, query_batch(df, batch_id, "late")). If the first write failed, and was '
            "tried again, start the program again",
        )


def _is_known(output: OutputBatch, write: str) -> bool:
    """Whether the run has begun or found a write of the batch before; it has from now on."""
    key, batch = (output.location_id, output.output), (output.run, output.batch_id)
    with _lock:
        run, batch_id, known = _writes.get(key, (*batch, set()))
        if (run, batch_id) != batch:
            known = set()
        is_known = write in known
        known.add(write)
        _writes[key] = (*batch, known)
    return is_known


def check_output(output: object) -> OutputBatch:
    """Return ``output``, or raise ConfigError if it is not what a sink knows a batch by."""
    if not isinstance(output, OutputBatch):
        raise ConfigError(
            f"the batch is given as {output!r}, which does not identify it",
            operation="write batch",
            hint="give an OutputBatch: query_batch(df, batch_id) in a Structured query, the third "
            "argument of foreachBatch's function in a DStream program",
        )
    return output


def check_plan(output: OutputBatch, newest_id: int, plan: str, sink: str) -> None:
    """Check a batch against the newest one that a sink holds: this one, or an earlier one.

    Args:
        output: the batch that is to be written.
        newest_id: the newest batch that the sink holds of the output, -1 for none.
        plan: that batch's plan.
        sink: the sink, for messages.

    Raises:
        SinkError: it has the same id and was planned apart; or the batch that the sink holds is not
            the one in the location's log.
    """
    if newest_id == output.batch_id:
        if plan != output.plan:
            raise _planned_apart(output, sink)
        return
    run = _runs.get((output.location_id, output.run))
    known = None if run is None or newest_id < 0 else run.plan_of(newest_id)
    if known is not None and known != plan:
        raise _other_history(output, newest_id, sink)


_RESTORED = (
    "the checkpoint location was restored from an older copy, or its newest entries were removed, "
    "or another run has overtaken this one"
)
_FIX = (
    "only one run may write here. Restore the newest copy of the location; or remove from the sink "
    "what was written since the copy was made, and start with a new location"
)


def _planned_apart(output: OutputBatch, sink: str) -> SinkError:
    message = (
        f"batch {output.batch_id} of output {output.output!r} is written already, with other "
        f"records: {_RESTORED}"
    )
    return _error(message, output, sink, _FIX)


def _other_history(output: OutputBatch, newest_id: int, sink: str) -> SinkError:
    message = (
        f"batch {output.batch_id} of output {output.output!r} follows on a batch {newest_id} that "
        f"is not the one which the sink holds, so its records may be written already: {_RESTORED}"
    )
    return _error(message, output, sink, _FIX)


def _error(message: str, output: OutputBatch, sink: str, hint: str) -> SinkError:
    ids = {"output": output.output, "batch": output.batch_id}
    return SinkError(message, operation="write batch", path=sink, ids=ids, hint=hint)

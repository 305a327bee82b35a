"""Writes a batch to a table of a database, once: the protocol, without Spark.

    driver     the newest batch of the output is this one? end                    begin
               create a staging table, under a name of this attempt's own
    executors  each task copies its rows into it, with a mark of its own          Database.load
    driver     one transaction: newest batch := this one, if it is a later one;   publish
               the rows of the tasks that succeeded := rows of the table
               drop the staging tables of this batch and of those before it

Invariants:

1. The newest batch of an output and the batch's rows change in one transaction, whose condition is
   that the newest batch was an earlier one. The database lets one of two such transactions wait for
   the other. So of all attempts at a batch, however many run at once or wake later, one counts.
2. A staged row counts only if its task's mark was returned to the driver. So a task that Spark
   repeats, or runs twice, adds nothing. There must be as many of them as tasks returned: a staging
   table that was emptied (by a crash of the server) is not taken for a batch without rows.
3. A staging table is dropped when its batch or a later one is written: no attempt needs it any
   more. One that a kill left is dropped with the next batch of the output.
4. Rows go from executors to the database, and from there into the table: none is on the driver.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import ConfigError, SinkError
from penstock.exactly_once import check_once, check_plan, new_write
from penstock.model import OutputBatch, check_name

TOKENS = "penstock_batches"
"""The table of the newest batch of each output."""
MARK = "penstock_mark"
"""The column of a staging table with the mark of the task that copied a row."""
_STAGE = re.compile(r"penstock_stage_[0-9a-f]{12}_([0-9]{1,19})_[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and the output that writes to it.

    The names are the database's own: one table has one target, however a program spells it.
    """

    schema: str
    """The table's schema, which also has the table of tokens and the staging tables."""
    name: str
    application: str
    """Of the output: the same in each run, and no other output's."""

    @property
    def table(self) -> str:
        """The table's name, by which its tokens are known."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The table's name for a statement."""
        return self.beside(self.name)

    def beside(self, name: str) -> str:
        """Return the name of a table in this one's schema, for a statement."""
        return f"{quoted(self.schema)}.{quoted(name)}"

    @property
    def stage_prefix(self) -> str:
        """What the names of the output's staging tables begin with."""
        text = f"{self.application}\0{self.table}"
        return f"penstock_stage_{hashlib.sha256(text.encode()).hexdigest()[:12]}_"


@dataclass(frozen=True, slots=True)
class Stage:
    """An attempt at a batch."""

    target: Target
    batch_id: int
    name: str
    """Of its staging table."""
    columns: Sequence[str]
    output: OutputBatch
    write: str
    """The attempt's own (``exactly_once.new_write``)."""


class Newest(NamedTuple):
    """The newest batch of an output."""

    batch_id: int = -1
    plan: str = ""
    """See OutputBatch."""
    write: str = ""
    """The attempt that wrote it."""


class Loaded(NamedTuple):
    """What a task copied."""

    mark: str
    records: int


class Database(Protocol):
    """What the protocol needs of a database. It pickles; each call has a connection of its own.

    Each method raises SinkError or what the database's client raises.
    """

    def find(self, table: str, application: str) -> Target:
        """Return the target that a table's name stands for.

        Raises:
            ConfigError: there is no such table.
        """

    def newest(self, target: Target) -> Newest:
        """Return the newest batch of the output; creates the table of tokens."""

    def columns(self, target: Target) -> list[str]:
        """Return the columns of the table."""

    def create_stage(self, stage: Stage) -> None:
        """Create the staging table: the stage's columns, of the types of the table's, and MARK."""

    def load(self, stage: Stage, mark: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Copy rows into the staging table; return their number. They count by their mark only."""

    def publish(self, stage: Stage, marks: Sequence[str], records: int) -> None:
        """Do the transaction of invariant 1, if there are so many records with these marks."""

    def stages(self, target: Target) -> list[str]:
        """Return the names of the staging tables whose names begin with ``stage_prefix``."""

    def drop_stages(self, target: Target, names: Sequence[str]) -> None:
        """Drop staging tables, but for those that a task is writing to."""


def begin(
    database: Database, table: str, output: OutputBatch, columns: Sequence[str]
) -> Stage | None:
    """Begin an attempt at a batch; return None if it is written.

    Raises:
        ConfigError: there is no table, it lacks one of the columns, or the output's name is not
            allowed.
        SinkError: a later batch is written already, or this one with other records.
    """
    location = check_name("location", output.location_id)
    target = database.find(table, f"{location}/{check_name('output', output.output)}")
    newest = database.newest(target)
    _check_newest(target, output, newest)
    if newest.batch_id == output.batch_id:
        return None
    known = database.columns(target)
    if missing := [name for name in columns if name not in known]:
        raise ConfigError(
            f"table {table} has no column {', '.join(map(repr, missing))}",
            operation="write batch",
            ids={"table": table},
            hint=f"it has {', '.join(map(repr, known))}; select the columns that the table has",
        )
    write = new_write(output)
    name = f"{target.stage_prefix}{output.batch_id}_{write[:8]}"
    stage = Stage(target, output.batch_id, name, columns, output, write)
    database.create_stage(stage)
    return stage


def publish(database: Database, stage: Stage, loaded: Sequence[Loaded]) -> None:
    """Publish a batch that is staged, unless another attempt at it was quicker.

    Raises:
        SinkError: a later batch is written already, or this one with other records, or rows are no
            longer in the staging table.
    """
    target, batch_id = stage.target, stage.batch_id
    records = sum(task.records for task in loaded)
    database.publish(stage, [task.mark for task in loaded], records)
    newest = database.newest(target)
    if newest.batch_id >= batch_id:
        done = [name for name in database.stages(target) if _batch_of(name) <= batch_id]
        database.drop_stages(target, done)
    if newest.write != stage.write:
        _check_newest(target, stage.output, newest)
    if newest.batch_id < batch_id:
        raise SinkError(
            f"the staging table of batch {batch_id} lacks some of the {records} rows tasks copied: "
            "was the server restarted?",
            operation="write batch",
            ids={"table": target.table, "stage": stage.name},
            hint="nothing was written; start the query again, and the batch runs again",
        )


def quoted(name: str) -> str:
    """Return a name, of whatever it is, for a statement."""
    return '"' + name.replace('"', '""') + '"'


def _batch_of(stage: str) -> int:
    match = _STAGE.fullmatch(stage)
    assert match is not None, stage
    return int(match[1])


def _check_newest(target: Target, output: OutputBatch, newest: Newest) -> None:
    batch_id = output.batch_id
    if newest.batch_id <= batch_id:
        check_plan(output, newest.batch_id, newest.plan, target.table)
        if newest.batch_id == batch_id:
            check_once(output, newest.write, target.table)
    else:
        raise SinkError(
            f"batch {batch_id} is to be written, but batch {newest.batch_id} is written already",
            operation="write batch",
            ids={"table": target.table, "application": target.application},
            hint="another run of the query has overtaken this one, or its checkpoint location was "
            "restored from an older copy; only one of them may write here",
        )

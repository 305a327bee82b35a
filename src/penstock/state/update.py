"""One batch of one partition: the user's function on its records, then on keys that time out.

Nothing is written here: the previous state is read from a database, and changes are kept in memory
until the whole batch is done.

Source: ``org.apache.spark.streaming.rdd.MapWithStateRDDRecord``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StateError
from penstock.state.database import Database
from penstock.state.delta import Entry, Outputs
from penstock.state.handle import State
from penstock.state.keys import decode_key, encode_key

__all__ = ["StateFunction", "Update", "pickle_state", "update_partition"]

StateFunction = Callable[[Any, Any, "State[Any]"], Any]
"""``f(key, value or None, state)``; its result is a record, unless it is None."""


@dataclass
class Update:
    """The changes of a batch to a partition, and its output records."""

    keys: int
    """The number of keys with state."""
    oldest_ms: int | None = None
    """A time before which no key was touched; known only with timeouts."""
    changes: dict[bytes, Entry | None] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)

    @property
    def is_empty(self) -> bool:
        """Whether the batch has neither changes nor output."""
        return not self.changes and not self.outputs.count


def update_partition(
    records: Iterable[tuple[Any, Any]],
    database: Database,
    function: StateFunction,
    *,
    time_ms: int,
    timeout_ms: int | None,
) -> Update:
    """Call the function for each record in order, then for each key that was idle for too long.

    Idle for too long: last touched more than ``timeout_ms`` before the batch's time. With a timeout
    a key is touched by each record that leaves it with state, without one only by ``update``.

    Raises:
        StateKeyError: a key has no identity that lasts.
        StateError: a state or a returned record cannot be pickled, or was used against its rules.
    """
    update = Update(database.origin.keys)
    for key, value in records:
        _call(function, key, value, update, database, time_ms, timeout_ms is not None)
    if timeout_ms is not None:
        _time_out(function, update, database, time_ms - timeout_ms)
        update.oldest_ms = _oldest_ms(update, database, time_ms)
    return update


def pickle_state(key: Any, value: Any) -> bytes:
    """Return a state's pickle.

    Raises:
        StateError: it cannot be pickled.
    """
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # anything that a user's __reduce__ raises
        raise StateError(
            f"the state of key {key!r:.200} cannot be pickled",
            operation="mapWithState",
            hint="keep plain values as state: numbers, text, tuples, lists, dicts",
        ) from error


def _call(
    function: StateFunction,
    key: Any,
    value: Any,
    update: Update,
    database: Database,
    time_ms: int,
    touches: bool,
) -> None:
    identity = encode_key(key)
    changes = update.changes
    entry = changes[identity] if identity in changes else database.get(identity)
    state: State[Any] = (
        State(None, defined=False)
        if entry is None
        else State(pickle.loads(entry.value), defined=True)
    )
    _give(function(key, value, state), update)
    if state.is_removed:
        if entry is not None:
            changes[identity] = None
            update.keys -= 1
    elif state.is_updated:
        changes[identity] = Entry(pickle_state(key, state.get()), time_ms)
        update.keys += entry is None
    elif entry is not None and touches:
        changes[identity] = Entry(entry.value, time_ms)


def _time_out(
    function: StateFunction, update: Update, database: Database, threshold_ms: int
) -> None:
    for identity, entry in database.untouched_since(threshold_ms):
        if identity in update.changes:  # this batch touched or removed it
            continue
        state: State[Any] = State(pickle.loads(entry.value), defined=True, timing_out=True)
        _give(function(decode_key(identity), None, state), update)
        update.changes[identity] = None
        update.keys -= 1


def _give(record: Any, update: Update) -> None:
    if record is not None:
        update.outputs.add(record)


def _oldest_ms(update: Update, database: Database, time_ms: int) -> int:
    """Return a time before which no key was touched: exact if the batch touched none."""
    times = (entry.touched_ms for entry in update.changes.values() if entry is not None)
    in_database = database.oldest_ms()
    return min((*times, time_ms if in_database is None else in_database))

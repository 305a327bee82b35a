"""Whether the state exists from which the next batch continues. Pure.

Batch N begins from version N of every store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.checkpoint.batch_ids import describe_files, find_gaps
from penstock.checkpoint.tools.findings import Finding
from penstock.checkpoint.tools.operators import OperatorInfo
from penstock.checkpoint.tools.state_files import (
    OperatorState,
    StateStore,
    first_whole,
    missing_files,
)

_MEANING = "the query fails when it loads its state for batch {}"
_FIX = (
    "restore the state from a backup; without one, go back to a batch whose state is there, or"
    " start with a new checkpoint location"
)


def check_operator(
    state: OperatorState, info: OperatorInfo | None, version: int
) -> Iterator[Finding]:
    """Yield what is missing to load ``version`` of each store of an operator."""
    if version == 0:
        return
    yield from check_partitions(state, info, version)
    for store in _expected(state, info):
        if missing := missing_files(store, version):
            folder = f"state/{state.operator}/{store.partition}"
            place = folder if store.name == "default" else f"{folder}/{store.name}"
            yield Finding(
                "error",
                f"{place}/{missing}",
                f"version {version} of the state cannot be loaded without it",
                _MEANING.format(version),
                _FIX,
            )


def check_partitions(
    state: OperatorState, info: OperatorInfo | None, version: int
) -> Iterator[Finding]:
    """Yield the partitions of an operator that have no files."""
    for name, gaps in _missing_partitions(state, info):
        yield Finding(
            "error",
            describe_files(f"state/{state.operator}", gaps),
            f"the store {name!r} of these partitions has no files",
            _MEANING.format(version),
            _FIX,
        )


def check_checkpoint_ids(
    states: Sequence[OperatorState], ids: object, version: int
) -> Iterator[Finding]:
    """Yield the files of ``version`` that a commit names by their ids, and that are missing.

    ``ids`` is ``stateUniqueIds`` of the batch before: by operator and partition, one for each
    store. Of one version several files may be left, by tasks that were tried again.
    """
    found = {
        (state.operator, store.partition, file.checkpoint_id)
        for state in states
        for store in state.stores
        for file in store.files
        if file.version == version
    }
    for operator, partition, checkpoint_id in _named(ids):
        if (operator, partition, checkpoint_id) not in found:
            yield Finding(
                "error",
                f"state/{operator}/{partition}/{version}_{checkpoint_id}",
                f"commits/{version - 1} names this version of the state, and no file has it",
                _MEANING.format(version),
                _FIX,
            )


def _named(ids: object) -> Iterator[tuple[str, int, str]]:
    for operator, partitions in ids.items() if isinstance(ids, Mapping) else ():
        for partition, stores in enumerate(partitions if isinstance(partitions, list) else ()):
            for checkpoint_id in stores if isinstance(stores, list) else ():
                if isinstance(checkpoint_id, str):
                    yield operator, partition, checkpoint_id


def check_empty_files(state: OperatorState, version: int) -> Iterator[Finding]:
    """Yield the state files that hold nothing: even an empty change has a mark at its end.

    An error is one without which ``version`` cannot be loaded.
    """
    for store in state.stores:
        first = first_whole(store, version)
        for file in store.files:
            is_needed = first <= file.version <= version
            if file.size == 0:
                yield Finding(
                    "error" if is_needed else "warning",
                    file.path,
                    "it is empty: the file was cut off",
                    f"version {file.version} of the state, and what builds on it, cannot be loaded",
                    _FIX,
                )


def _expected(state: OperatorState, info: OperatorInfo | None) -> list[StateStore]:
    """Return the existing stores of an operator without those that its description lacks."""
    if info is None:
        return list(state.stores)
    return [each for each in state.stores if each.partition < info.partitions.get(each.name, 0)]


def _missing_partitions(
    state: OperatorState, info: OperatorInfo | None
) -> Iterator[tuple[str, Sequence[range]]]:
    """Yield the partitions without files, by store; their number is only a claim of a file."""
    for name, count in info.partitions.items() if info is not None else ():
        existing = {each.partition for each in _expected(state, info) if each.name == name}
        if gaps := find_gaps({-1, *existing, count}):
            yield name, gaps

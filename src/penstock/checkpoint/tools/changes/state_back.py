r"""Takes the state of a query back: an old version's files, copied under a new version. Pure.

Batch N of Spark begins from version N of every store. The HDFS-backed store loads version V from
the newest snapshot that is not after it, and the deltas from there on:

    version 6 of a store            the same as version 16
    4.snapshot 5.delta 6.delta      14.snapshot 15.delta 16.delta
    1.delta ... 6.delta             10.snapshot (empty) 11.delta ... 16.delta

So no file is interpreted or rewritten. The snapshot is above every version that the store has, and
hides them. RocksDB's files name each other and versions in their content: they cannot be copied so.

Source: HDFSBackedStateStoreProvider.loadMap, readSnapshotFile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.checkpoint.tools.checks.checksums import sidecar_of, spark_checksum_of
from penstock.checkpoint.tools.state_files import OperatorState, StateFile, StateStore

_FORMAT = "HDFS-backed"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"
EMPTY_SNAPSHOT = (
    b"LZ4Block\x15\x04\0\0\0\x04\0\0\0\xdb\x80\x4d\x08\xff\xff\xff\xff"
    + b"LZ4Block\x15"
    + bytes(12)
)
"""An uncompressed block (sizes, checksum) of -1, the mark of the end; and the last block."""


def obstacle(states: Iterable[OperatorState], version: int, conf: Mapping[str, Any]) -> str | None:
    """Return why the state cannot go back to a version; None if it can."""
    for state in states:
        if state.format != _FORMAT:
            return f"the state of operator {state.operator} is {state.format}, not {_FORMAT}"
        for store in state.stores:
            if any(file.checkpoint_id for file in store.files):
                return "its state has checkpoint ids"
            is_lz4 = conf.get(_CODEC, "lz4") == "lz4"
            if not is_lz4 and not _chain(store, version)[0].size:
                return f"its state is compressed with {conf[_CODEC]}, and has no snapshot yet"
    return None


def first_free_version(states: Iterable[OperatorState], version: int) -> int:
    """Return the lowest version under which every store's copy is above all that it has."""
    stores = [store for state in states for store in state.stores]
    return max(store.files[-1].version + len(_chain(store, version)) for store in stores)


def copied_files(
    states: Iterable[OperatorState], version: int, new_version: int
) -> Iterator[tuple[str | None, str]]:
    """Yield what makes ``new_version`` the same as ``version``: path, and path of the copy.

    None stands for an empty snapshot.
    """
    for store in (store for state in states for store in state.stores):
        for file in _chain(store, version):
            folder = file.path.rpartition("/")[0]
            copy = f"{folder}/{file.version + new_version - version}.{file.kind}"
            yield (file.path if file.size else None), copy


def with_checksums(path: str, copy: str) -> Sequence[tuple[str, str]]:
    """Return a file and the checksums that it may have, each with its copy."""
    main, spark = (path, copy), (spark_checksum_of(path), spark_checksum_of(copy))
    return [(name(p), name(c)) for p, c in (main, spark) for name in (str, sidecar_of)]


def _chain(store: StateStore, version: int) -> list[StateFile]:
    """Return the files from which a version is loaded; an empty snapshot has no size."""
    usable = [file for file in store.files if file.version <= version]
    snapshots = [file for file in usable if file.kind == "snapshot"]
    folder = store.files[0].path.rpartition("/")[0]
    first = snapshots[-1] if snapshots else StateFile(0, "snapshot", f"{folder}/0.snapshot", 0)
    deltas = [file for file in usable if file.kind == "delta" and file.version > first.version]
    return [first, *deltas]

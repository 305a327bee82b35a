"""Writes what a query of Spark leaves, without Spark, as tests/.../conftest.py's real one does."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from penstock.checkpoint.checksum import checksum_of
from penstock.storage import open_storage

PARTITIONS = 2


def write_query(place: Path, batches: int, inputs: str = "file:///in") -> Path:
    """Write an aggregation with a watermark over a file source; return the location.

    All batches are committed. The source's log is compacted at every second entry. State has a
    delta for each version, of bytes that only a state store could read.
    """
    _write(place / "metadata", ['{"id":"6cc7d9a3-dd4b-4da6-9c38-5168a8ee4ce7"}'])
    for batch_id in range(batches):
        metadata = {
            "batchWatermarkMs": batch_id,
            "batchTimestampMs": 1_700_000_000_000 + 1000 * batch_id,
            "conf": {"spark.sql.shuffle.partitions": str(PARTITIONS)},
        }
        offset = {"logOffset": batch_id}
        _write(place / f"offsets/{batch_id}", ["v1", _json(metadata), _json(offset)])
        commit = {"nextBatchWatermarkMs": batch_id + 1}
        _write(place / f"commits/{batch_id}", ["v1", _json(commit)])
        is_compacted = batch_id % 2 == 1
        entries = range(batch_id + 1) if is_compacted else [batch_id]
        name = f"{batch_id}.compact" if is_compacted else str(batch_id)
        _write(place / f"sources/0/{name}", ["v1", *(_entry(inputs, each) for each in entries)])
        for partition in range(PARTITIONS):
            _write(place / f"state/0/{partition}/{batch_id + 1}.delta", ["delta"])
    operator = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [
            {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}
        ],
    }
    _write(place / "state/0/_metadata/metadata", ["v1", _json(operator)])
    return place


def write_stateless(place: Path, batches: int) -> Path:
    """Write a query without state over files that are there, beside it; return the location."""
    write_query(place, batches, inputs=f"file://{place.parent}/in")
    shutil.rmtree(place / "state")
    (place.parent / "in").mkdir(exist_ok=True)
    for batch_id in range(batches):
        (place.parent / f"in/{batch_id}.json").touch()
    return place


def _entry(folder: str, batch_id: int) -> str:
    path = f"{folder}/{batch_id}.json"
    return _json({"path": path, "timestamp": 1_700_000_000_000, "batchId": batch_id})


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    path.with_name(f".{path.name}.crc").write_bytes(checksum_of(path.read_bytes()))


def copy_to_store(place: Path) -> str:
    """Copy a location to an object store, which has no checksums and no locks; return its URL."""
    url = f"memory://{uuid.uuid4().hex}/query"
    storage = open_storage(url)
    for path in place.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            storage.create(str(path.relative_to(place)), path.read_bytes())
    return url

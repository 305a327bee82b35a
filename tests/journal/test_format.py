"""docs/journal-format.md is true: its example is read, and written, as it says."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StorageError
from penstock.journal import JournalStream, JournalWriter, RecordFormat, commit_consumer, retire
from penstock.journal.block import BlockFooter, encode_block, read_block, tail_size
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.retirer import Retirer
from penstock.storage import Storage
from tests.journal.helpers import PATIENT, path_of, write_blocks
from tests.storage.faulty_storage import FaultyStorage

PAGE = (Path(__file__).parents[2] / "docs" / "journal-format.md").read_text()


def fenced(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def example() -> bytes:
    return bytes.fromhex("".join(line[6:53] for line in fenced("hexdump").splitlines()))


@pytest.fixture
def verify() -> Any:
    names: dict[str, Any] = {}
    exec(fenced("python"), names)
    return names["verify"]


def test_the_example_is_read_as_stated() -> None:
    footer, parquet = read_block(example(), "p")
    assert footer == BlockFooter(0, 2, {"line": 2})
    assert parquet.read().to_pydict() == {"value": ["a", "bc"]}


def test_the_example_is_written_as_stated() -> None:
    record_format = RecordFormat("string")
    table = record_format.encode([["a", "bc"]])
    found = encode_block(table, BlockFooter(0, 2, {"line": 2})).to_pybytes()
    written_by = f"parquet-cpp-arrow version {pa.__version__}".encode()
    if written_by in example():
        assert found == example()
    else:  # another Arrow writes its own version there
        assert found[: len(found) - tail_size(found[-8:])] == example()[:0x28]


def test_the_places_in_the_example_are_as_stated() -> None:
    data = example()
    assert bytes.fromhex("e2c6859709") in data[0x04:0x1D]
    assert data[0x1D:0x28] == b"\1\0\0\0a\2\0\0\0bc"
    assert len(data) - tail_size(data[-8:]) == 0x28
    assert data[0x8C:].startswith(b"penstock\x18")
    assert data[0xDF:].startswith(b"penstock.crc\x18\x113d47380e:")
    assert int.from_bytes(data[0x1D9:0x1DD], "little") == 0x1B1
    assert data[0x1DD:] == b"PAR1"


def test_ten_lines_of_python_verify_a_block(verify: Any) -> None:
    data = example()
    assert verify(data)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        try:
            assert not verify(bytes(damaged))
        except ValueError:
            continue  # the key is not there any more


def test_files_are_as_stated(storage: Storage, verify: Any) -> None:
    stream = JournalStream.create(storage, "clicks", RecordFormat("string"))
    first = JournalWriter(stream, "r0", policy=PATIENT)
    first.append("a", position=7)
    first.flush()
    first.abandon()
    second = JournalWriter(stream, "r0", policy=PATIENT)
    second.close()
    commit_consumer(stream, "job", {str(second.id): 0})

    def names(folder: str) -> list[str]:
        return [entry.name for entry in storage.list(folder)]

    zero, one = f"{0:020d}.parquet", f"{1:020d}.parquet"
    assert names("clicks") == ["consumers", "r0-00000000", "r0-00000001", "stream.json"]
    assert names("clicks/r0-00000000") == [zero, one, "_writer.json"]
    assert names("clicks/r0-00000001") == [zero, "_writer.json"]
    assert json.loads(storage.read("clicks/stream.json")) == {
        "version": 1,
        "stream": "clicks",
        "schema": {"kind": "string"},
    }
    claim = json.loads(storage.read("clicks/r0-00000000/_writer.json"))
    assert claim.keys() == {"host", "pid", "claimed"}
    assert storage.read("clicks/consumers/job.json") == b'{"offsets":{"r0-00000001":0}}'
    for writer, start in [(first.id, 0), (first.id, 1), (second.id, 0)]:
        data = storage.read(path_of(stream, writer, start))
        assert verify(data)
        _, parquet = read_block(data, "p")
        meta = json.loads(parquet.metadata.metadata[b"penstock"])
        assert meta == {
            "version": 1,
            "start": start,
            "count": int((writer, start) == (first.id, 0)),
            "position": 7,
            "sealed": (writer, start) != (first.id, 0),
        }


def test_what_is_announced_is_as_stated(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    stream = JournalStream.create(faulty, "clicks", RecordFormat("string"))
    writer = write_blocks(stream, [["a"], ["b"]])
    consumer = register_consumer(stream, "job", "me")
    path = "clicks/consumers/job.json"
    begun = b'{"offsets":{"r0-00000000":0},"owner":"me","begin":{"r0-00000000":0},"kind":"string"'
    assert storage.read(path) == begun + b"}"
    committed = begun.replace(b":0}", b":1}", 1)
    Retirer(consumer).commit({str(writer): 1}, [writer])
    assert storage.read(path) == committed + b',"retiring":{"r0-00000000":1}}'
    consumer.commit({str(writer): 2}, retained={str(writer): 1}, swept={"r0": 0})
    assert storage.read(path).endswith(b',"retained":{"r0-00000000":1},"swept":{"r0":0}}')
    consumer.commit({str(writer): 2})
    faulty.fail("delete")
    with pytest.raises(StorageError):
        retire(stream)
    (notice,) = (e.name for e in storage.list("clicks/consumers") if e.name != "job.json")
    assert re.fullmatch(r"[0-9a-f]{16}\.retiring", notice)
    assert storage.read(f"clicks/consumers/{notice}") == b'{"retiring":{"r0-00000000":2}}'


def test_an_arrow_schema_is_as_stated(storage: Storage) -> None:
    schema = pa.schema([("a", pa.int64())])
    JournalStream.create(storage, "rows", RecordFormat(schema))
    found = json.loads(storage.read("rows/stream.json"))["schema"]
    assert found["kind"] == "arrow"
    assert pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["ipc"]))) == schema

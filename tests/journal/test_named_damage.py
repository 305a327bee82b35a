"""What is wrong with the blocks that an error names, and what it costs to find out."""

from __future__ import annotations

import uuid

import pytest

from penstock.errors import DamagedBlockError, MissingBlockError, PenstockError
from penstock.journal import JournalStream, RecordFormat, read_batches
from penstock.journal.source import find_named_damage
from penstock.journal.stream import WriterId
from penstock.model import OffsetRange
from penstock.storage import open_storage
from tests.journal.helpers import path_of, write_blocks
from tests.storage.faulty_storage import FaultyStorage

BLOCKS = 20
ALL = [OffsetRange("r0-00000000", 0, BLOCKS)]


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(open_storage(f"memory://{uuid.uuid4().hex}"))


@pytest.fixture
def stream(storage: FaultyStorage) -> JournalStream:
    stream = JournalStream.create(storage, "clicks", RecordFormat("string"))
    write_blocks(stream, [[str(number)] for number in range(BLOCKS)])
    storage.operations.clear()
    return stream


def blocks_read(storage: FaultyStorage) -> set[str]:
    return {o.path for o in storage.operations if o.kind == "read" and ".parquet" in o.path}


def spark_names(path: str) -> str:
    return f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/x/j/{path}."


def test_an_error_that_names_no_block_costs_nothing(
    stream: JournalStream, storage: FaultyStorage
) -> None:
    assert find_named_damage(stream, ALL, "FileNotFoundError: /models/7.bin") is None
    assert storage.operations == []


def test_only_the_block_that_is_named_is_read(
    stream: JournalStream, storage: FaultyStorage
) -> None:
    path = path_of(stream, WriterId("r0", 0), 7)
    storage.damage(path, flip_at=30)

    found = find_named_damage(stream, ALL, spark_names(path))

    assert isinstance(found, DamagedBlockError)
    assert blocks_read(storage) == {path}


def test_sound_blocks_that_are_named_are_no_damage_and_few_are_read(
    stream: JournalStream, storage: FaultyStorage
) -> None:
    paths = [path_of(stream, WriterId("r0", 0), number) for number in range(BLOCKS)]
    assert find_named_damage(stream, ALL, " ".join(map(spark_names, paths))) is None
    assert blocks_read(storage) == set(paths[:4])


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_what_pythons_readers_say_names_the_block(
    stream: JournalStream, storage: FaultyStorage, damage: str
) -> None:
    path = path_of(stream, WriterId("r0", 0), 7)
    if damage == "flipped":
        storage.damage(path, flip_at=30)
    else:
        storage.delete(path)
    with pytest.raises((DamagedBlockError, MissingBlockError)) as caught:
        list(read_batches(stream, ALL))
    storage.operations.clear()

    found = find_named_damage(stream, ALL, f"{type(caught.value)}: {caught.value}")

    assert isinstance(found, type(caught.value))
    assert isinstance(found, PenstockError)
    assert found.ids == caught.value.ids
    assert len(blocks_read(storage)) == 1

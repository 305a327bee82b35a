"""read(start, end) is Python's slicing, on every backend."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import Storage, open_storage

INDEX = st.integers(-40, 40)


@pytest.fixture(scope="module", params=["local", "memory"])
def storage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Storage]:
    if request.param == "local":
        yield open_storage(tmp_path_factory.mktemp("slices"))
    else:
        yield open_storage(f"memory://{uuid.uuid4().hex}")


@given(content=st.binary(max_size=30), start=INDEX, end=st.none() | INDEX)
def test_read_slices_as_python_does(
    storage: Storage, content: bytes, start: int, end: int | None
) -> None:
    storage.create("file", content, overwrite=True)

    assert storage.read("file", start, end) == content[start:end]

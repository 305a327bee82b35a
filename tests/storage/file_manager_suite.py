"""Tests of what a CheckpointFileManager promises, for classes of programs as for penstock's own.

    import pytest

    pytest.register_assert_rewrite("tests.storage.file_manager_suite")
    from tests.storage.file_manager_suite import CheckpointFileManagerSuite

    class TestVault(CheckpointFileManagerSuite):
        @pytest.fixture
        def storage(self, tmp_path):
            return Vault(f"{tmp_path}/root")

Needs pytest, which nothing else here does. It does not find out whether files survive a power cut,
nor whether a create is exclusive between hosts: see the invariants in penstock.storage.base.
"""

from __future__ import annotations

import array
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import AlreadyExistsError, ConfigError, NotFoundError, StorageError
from penstock.storage import CheckpointFileManager, Entry

__all__ = ["CheckpointFileManagerSuite"]

CONTENT = bytes(range(256)) * 40
_WAIT_S = 60.0


class CheckpointFileManagerSuite:
    """A test for each promise; a subclass has the fixture ``storage``, a new one for each test."""

    race_rounds = 100
    """How many names the threads race for: fewer where a create takes long."""

    def test_a_created_file_is_there(self, storage: CheckpointFileManager) -> None:
        storage.create("folder/deep/file", CONTENT)

        assert storage.read("folder/deep/file") == CONTENT
        assert storage.exists("folder/deep/file")
        assert storage.list("folder/deep") == [Entry("file", size=len(CONTENT))]

    def test_an_empty_file_is_a_file(self, storage: CheckpointFileManager) -> None:
        storage.create("seal", b"")

        assert storage.exists("seal")
        assert storage.read("seal") == b""
        assert storage.read("seal", -4) == b""
        assert storage.list() == [Entry("seal", size=0)]

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (bytearray(b"abc"), b"abc"),
            (memoryview(b"abcdef")[2:4], b"cd"),
            (array.array("H", [0x4141, 0x4242]), b"AABB"),
            (pa.py_buffer(b"arrow"), b"arrow"),
            (pa.py_buffer(b""), b""),
        ],
        ids=["bytearray", "memoryview", "array", "arrow", "empty arrow"],
    )
    def test_create_takes_any_buffer(
        self, storage: CheckpointFileManager, data: Any, expected: bytes
    ) -> None:
        storage.create("file", data)

        assert storage.read("file") == expected

    @pytest.mark.parametrize("data", ["text", 5, None, memoryview(b"abcdef")[::2]])
    def test_create_refuses_what_is_no_buffer(
        self, storage: CheckpointFileManager, data: Any
    ) -> None:
        with pytest.raises(ConfigError):
            storage.create("file", data)

        assert not storage.exists("file")

    def test_create_refuses_a_taken_name(self, storage: CheckpointFileManager) -> None:
        storage.create("file", b"first")

        with pytest.raises(AlreadyExistsError) as caught:
            storage.create("file", b"second")

        assert storage.read("file") == b"first"
        assert (caught.value.operation, caught.value.path) == ("create", "file")
        assert caught.value.hint

    def test_overwrite_replaces_and_creates(self, storage: CheckpointFileManager) -> None:
        storage.create("file", b"a long first version", overwrite=True)
        storage.create("file", b"second", overwrite=True)

        assert storage.read("file") == b"second"
        assert storage.list() == [Entry("file", size=6)]

    def test_exactly_one_of_several_threads_creates_a_name(
        self, storage: CheckpointFileManager
    ) -> None:
        racers, rounds = 8, self.race_rounds
        start = threading.Barrier(racers)
        winners: list[list[int]] = [[] for _ in range(rounds)]
        problems: list[BaseException] = []

        def race(racer: int) -> None:
            try:
                for number in range(rounds):
                    start.wait(_WAIT_S)
                    try:
                        storage.create(f"race/{number}", b"%d" % racer)
                    except AlreadyExistsError:
                        continue
                    winners[number].append(racer)
            except BaseException as error:
                problems.append(error)
                start.abort()

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert problems == []
        assert [len(won) for won in winners] == [1] * rounds
        assert [storage.read(f"race/{number}") for number in range(rounds)] == [
            b"%d" % won for (won,) in winners
        ]

    def test_a_reader_never_sees_a_part(self, storage: CheckpointFileManager) -> None:
        versions = {bytes([number]) * 50_000 for number in range(1, 9)}
        storage.create("file", next(iter(versions)))
        done = threading.Event()

        def rewrite() -> None:
            try:
                for version in versions:
                    storage.create("file", version, overwrite=True)
            finally:
                done.set()

        writer = threading.Thread(target=rewrite)
        writer.start()
        seen = set()
        while not done.is_set():
            seen.add(storage.read("file"))
            assert [entry.name for entry in storage.list()] == ["file"]
        writer.join()

        assert seen <= versions

    def test_list_gives_direct_children_sorted(self, storage: CheckpointFileManager) -> None:
        for path in ("b/2", "b/10", "a", "b/sub/x", "c/y"):
            storage.create(path, b"12345")

        assert storage.list() == [
            Entry("a", size=5),
            Entry("b", is_folder=True),
            Entry("c", is_folder=True),
        ]
        assert storage.list("b") == [
            Entry("10", size=5),
            Entry("2", size=5),
            Entry("sub", is_folder=True),
        ]

    def test_names_gives_the_files_of_a_folder_sorted(self, storage: CheckpointFileManager) -> None:
        for path in ("b/2", "b/10", "b/sub/x"):
            storage.create(path, b"12345")

        assert list(storage.names("b")) == ["10", "2"]
        assert list(storage.names("nowhere")) == []

    def test_list_of_no_folder_is_empty(self, storage: CheckpointFileManager) -> None:
        storage.create("file", b"x")

        assert list(storage.list("nowhere")) == []
        assert list(storage.list("nowhere/deeper")) == []
        assert list(storage.list("file")) == []

    def test_find_gives_the_files_at_any_depth(self, storage: CheckpointFileManager) -> None:
        for path in ("b/2", "b/10", "a", "b/sub/x", "c/y", "bc"):
            storage.create(path, b"12345")

        assert list(storage.find()) == ["a", "b/10", "b/2", "b/sub/x", "bc", "c/y"]
        assert list(storage.find("b")) == ["b/10", "b/2", "b/sub/x"]
        assert list(storage.find("nowhere")) == []
        assert list(storage.find("a")) == []
        storage.delete("b/sub/x")
        assert list(storage.find("b/sub")) == []

    def test_walk_gives_the_files_at_any_depth_with_their_sizes(
        self, storage: CheckpointFileManager
    ) -> None:
        before_ms = time.time() * 1000
        for size, path in enumerate(("b/2", "b/10", "a", "b/sub/x", "bc")):
            storage.create(path, bytes(size))

        found = storage.walk()

        sizes = [(each.path, each.size) for each in found]
        assert sizes == [("a", 2), ("b/10", 1), ("b/2", 0), ("b/sub/x", 3), ("bc", 4)]
        times_ms = [each.modified_ms for each in found if each.modified_ms is not None]
        assert all(abs(time_ms - before_ms) < 3_600_000 for time_ms in times_ms)
        assert [each.path for each in storage.walk("b")] == ["b/10", "b/2", "b/sub/x"]
        assert list(storage.walk("nowhere")) == []
        assert list(storage.walk("a")) == []

    def test_list_is_never_stale(self, storage: CheckpointFileManager) -> None:
        other = pickle.loads(pickle.dumps(storage))
        for number in range(5):
            other.create(f"folder/{number}", b"x")
            assert len(storage.list("folder")) == number + 1
        other.delete("folder/0")

        assert [entry.name for entry in storage.list("folder")] == ["1", "2", "3", "4"]
        assert not storage.exists("folder/0")

    def test_delete_removes_and_can_be_repeated(self, storage: CheckpointFileManager) -> None:
        storage.create("folder/file", b"x")
        storage.delete("folder/file")
        storage.delete("folder/file")
        storage.delete("nowhere/file")

        assert not storage.exists("folder/file")
        assert list(storage.list("folder")) == []

    def test_a_deleted_name_can_be_created_again(self, storage: CheckpointFileManager) -> None:
        storage.create("file", b"first")
        storage.delete("file")
        storage.create("file", b"second")

        assert storage.read("file") == b"second"

    @pytest.mark.parametrize("path", ["nothing", "nowhere/nothing", "folder", "folder/file/below"])
    def test_read_of_no_file_says_so(self, storage: CheckpointFileManager, path: str) -> None:
        storage.create("folder/file", b"x")

        with pytest.raises(NotFoundError) as caught:
            storage.read(path)
        with pytest.raises(NotFoundError):
            storage.read(path, -8)

        assert not storage.exists(path)
        assert (caught.value.operation, caught.value.path) == ("read", path)

    @pytest.mark.parametrize(
        "path", ["", "/", "/etc", "../x", "a/../../x", "a//b", "a/", "./a", "a/.", "a\0b"]
    )
    def test_paths_stay_under_the_root(self, storage: CheckpointFileManager, path: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: storage.create(path, b"x"),
            lambda: storage.read(path),
            lambda: storage.delete(path),
            lambda: storage.exists(path),
            lambda: storage.uri(path),
        ]
        if path:
            calls.append(lambda: storage.list(path))
        for call in calls:
            with pytest.raises(ConfigError):
                call()

    @pytest.mark.parametrize("name", [".hidden", "a b", "%20", "ü", "_x", "k=v", "x.tmp"])
    def test_names_are_kept_as_they_are(self, storage: CheckpointFileManager, name: str) -> None:
        storage.create(f"folder/{name}", b"x")

        assert [entry.name for entry in storage.list("folder")] == [name]
        assert storage.read(f"folder/{name}") == b"x"
        assert storage.uri(f"folder/{name}").endswith(f"/folder/{name}")

    def test_a_pickled_copy_is_small_and_works(self, storage: CheckpointFileManager) -> None:
        pickled = pickle.dumps(storage)
        copy = pickle.loads(pickled)
        copy.create("file", b"x")

        assert storage.read("file") == b"x"
        assert copy.url == storage.url
        assert len(pickled) < 200 + len(storage.url)

    def test_a_refused_create_leaves_nothing_else(self, storage: CheckpointFileManager) -> None:
        storage.create("folder/file", b"first")
        with pytest.raises(StorageError):
            storage.create("folder/file", b"second")

        assert storage.list("folder") == [Entry("file", size=5)]

    def test_a_folder_is_a_storage_of_its_own(self, storage: CheckpointFileManager) -> None:
        inner = storage.open_folder("journal").open_folder("clicks")
        pickle.loads(pickle.dumps(inner)).create("r0/1.parquet", b"x")

        assert storage.read("journal/clicks/r0/1.parquet") == b"x"
        assert storage.uri("journal/clicks/r0/1.parquet") == inner.uri("r0/1.parquet")
        assert storage.url != inner.url

    def test_variants_are_the_same_files(self, storage: CheckpointFileManager) -> None:
        storage.private().create("private", b"x")
        storage.without_sync().create("unsynced", b"x")
        storage.sweep()

        assert [entry.name for entry in storage.list()] == ["private", "unsynced"]
